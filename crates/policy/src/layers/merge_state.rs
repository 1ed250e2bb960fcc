//! The values of a policy while the parts of a stack are heard.

use std::path::{Path, PathBuf};

use ringfence_authz::{LeakPolicy, Policy, net_ceiling};
use ringfence_types::{
    Access, ApprovalMode, Backend, CommandMode, Control, LeakAction, Limits, NetMode, Profile, UnlistedHosts,
};

use super::super::file::PolicyFile;
use super::super::format::Body;
use super::super::leaks::LeakSetting;
use super::super::limits::{LimitAmount, LimitKey};
use super::super::problem::{PolicyError, PolicyProblem};
use super::super::source_text::{TextSpan, WithSpan};
use super::container::{ContainerLayerState, backend_flag};
use super::merge;
use super::roots::RootLayers;
use super::setting_slot::{MergeReport, OrderedSetting, SettingAuthor, SettingSlot};
use super::{EffectivePolicy, EffectiveSetting, LayerStep, SectionAuthority, StartupFlags};

pub(super) struct MergeState<'a> {
    pub(super) flags: &'a StartupFlags,
    pub(super) report: MergeReport,
    chosen: SettingSlot<Profile>,
    /// What operator and flags chose, then each stricter one that was asked for. A profile is stricter as a whole, not in
    /// everything, so that all of them hold; the last has the name.
    profiles: Vec<SettingSlot<Profile>>,
    minimum: Option<SettingSlot<Profile>>,
    commands: SettingSlot<CommandMode>,
    approval: SettingSlot<ApprovalMode>,
    access: SettingSlot<Access>,
    /// Of operator and flags, before anything narrowed it.
    given_access: SettingSlot<Access>,
    pub(super) net: SettingSlot<NetMode>,
    unlisted_hosts: SettingSlot<UnlistedHosts>,
    backend: SettingSlot<Option<Backend>>,
    containers: ContainerLayerState,
    limits: Vec<(LimitKey, SettingSlot<LimitAmount>)>,
    leaks: Vec<(LeakSetting, SettingSlot<LeakAction>)>,
    floor: FloorSetting,
    pub(super) roots: RootLayers<'a>,
}

/// Required whatever else is said, and what is required at least.
#[derive(Default)]
struct FloorSetting {
    required: Vec<(Control, SettingAuthor)>,
    lowered: Option<(Vec<Control>, SettingAuthor)>,
}

impl<'a> MergeState<'a> {
    pub(super) fn new(
        flags: &'a StartupFlags,
        resolve: &'a dyn Fn(&Path) -> PathBuf,
        stack: &[LayerStep<'_>],
    ) -> Self {
        let mut report = MergeReport::default();
        let minimum = minimum(stack);
        let chosen = chosen(flags, stack, minimum.as_ref(), &mut report);
        let profiles = narrowed(chosen.clone(), stack, &mut report);
        let value = chosen.value;
        let given = Policy::new(value);
        let by = SettingAuthor::Profile(value);
        let limits = LimitKey::ALL.map(|limit| {
            let most = limit.of(&given.limits);
            let by = if promises_limits(value) { by.clone() } else { SettingAuthor::Default };
            (limit, SettingSlot::new(limit.key(), most, limit.show(most), by))
        });
        let leaks = LeakSetting::ALL.map(|leak| {
            let action = *leak.of(&mut LeakPolicy::default());
            (leak, SettingSlot::new(leak.key(), action, action, SettingAuthor::Default))
        });
        Self {
            flags,
            report,
            commands: SettingSlot::new("commands", given.commands, given.commands, by.clone()),
            approval: SettingSlot::new("approval", given.approval, given.approval, by.clone()),
            access: SettingSlot::new("workspace_access", given.access, given.access, by.clone()),
            given_access: SettingSlot::new("workspace_access", given.access, given.access, by),
            net: SettingSlot::new("net", NetMode::None, NetMode::None, SettingAuthor::Default),
            unlisted_hosts: SettingSlot::new(
                "unlisted_hosts",
                given.unlisted_hosts,
                given.unlisted_hosts,
                SettingAuthor::Default,
            ),
            backend: SettingSlot::new("backend", None, "the strongest there is", SettingAuthor::Default),
            containers: ContainerLayerState::new(),
            limits: limits.to_vec(),
            leaks: leaks.to_vec(),
            floor: FloorSetting::default(),
            roots: RootLayers::new(flags, resolve),
            chosen,
            profiles,
            minimum,
        }
    }

    /// One part of the stack.
    pub(super) fn apply(&mut self, step: &LayerStep<'_>) {
        let body = &step.section.body;
        let own = body.workspace_access.as_ref().map(|given| word(step, "workspace_access", given));
        if let Some(left) = self.roots.apply(step, &self.given_access, own, &mut self.report) {
            self.access.offer(left, step.standing, &mut self.report);
        }
        self.apply_words(step, body);
        for (limit, slot) in &mut self.limits {
            if let Some(WithSpan { value, span }) =
                body.limits.as_ref().and_then(|table| limit.in_table(table))
            {
                let offer =
                    SettingSlot::new(limit.key(), value, limit.show(value), SettingAuthor::file(step, span));
                slot.offer(offer, step.standing, &mut self.report);
            }
        }
        for (leak, slot) in &mut self.leaks {
            if let Some(given) = body.leaks.as_ref().and_then(|table| leak.in_table(table)) {
                slot.offer(word(step, leak.key(), given), step.standing, &mut self.report);
            }
        }
        if let Some(table) = &body.container {
            self.containers.apply(step, table, self.flags, &mut self.report);
        }
        self.apply_floor(step, body);
    }

    fn apply_words(&mut self, step: &LayerStep<'_>, body: &Body) {
        let report = &mut self.report;
        if let Some(given) = &body.commands {
            self.commands.offer(word(step, "commands", given), step.standing, report);
        }
        if let Some(given) = &body.approval {
            self.approval.offer(word(step, "approval", given), step.standing, report);
        }
        if let Some(given) = &body.net {
            self.net.offer(word(step, "net", given), step.standing, report);
        }
        if let Some(given) = &body.unlisted_hosts {
            self.unlisted_hosts.offer(word(step, "unlisted_hosts", given), step.standing, report);
        }
        if let Some(WithSpan { value, span }) = body.backend {
            let offer = SettingSlot::new("backend", Some(value), value, SettingAuthor::file(step, span));
            self.backend.offer(offer, step.standing, report);
        }
    }

    fn apply_floor(&mut self, step: &LayerStep<'_>, body: &Body) {
        for control in body.required_controls.iter().flat_map(|floor| &floor.items) {
            self.floor.required.push((control.value, SettingAuthor::file(step, control.span)));
        }
        if let Some(lowered) =
            body.danger_required_controls.as_ref().filter(|_| step.standing == SectionAuthority::Authority)
        {
            let controls = lowered.items.iter().map(|control| control.value).collect();
            self.floor.lowered = Some((controls, SettingAuthor::file(step, lowered.span)));
        }
    }

    /// No file gives more than the profile that was chosen.
    pub(super) fn hold_profile(&mut self) {
        self.hold(self.chosen.value);
    }

    fn hold(&mut self, profile: Profile) {
        let given = Policy::new(profile);
        self.commands.hold(profile, given.commands, given.commands);
        self.approval.hold(profile, given.approval, given.approval);
        self.access.hold(profile, given.access, given.access);
        self.net.hold(profile, net_ceiling(profile), net_ceiling(profile));
        if !promises_limits(profile) {
            return;
        }
        for (limit, slot) in &mut self.limits {
            let most = limit.of(&given.limits);
            slot.hold(profile, most, limit.show(most));
        }
    }

    pub(super) fn apply_flags(&mut self) {
        self.apply_net_flag();
        if let Some(backend) = self.flags.backend {
            let offer = SettingSlot::new("backend", Some(backend), backend, backend_flag(backend));
            self.backend.choose(offer, &mut self.report);
        }
        self.containers.apply_flags(self.flags, &mut self.report);
        for (limit, slot) in &mut self.limits {
            if let Some(amount) = limit.in_flags(&self.flags.limits) {
                let shown = limit.show(amount);
                let by = SettingAuthor::Flag(format!("{} {shown}", limit.flag()));
                slot.choose(SettingSlot::new(limit.key(), amount, shown, by), &mut self.report);
            }
        }
        // What a flag shows of the workspace is a choice within what the files give, whatever another flag leaves of the rest.
        self.roots.apply_flags(&self.access, &mut self.report);
        if let Some(access) = self.flags.access {
            let offer = SettingSlot::new(
                "workspace_access",
                access,
                access,
                SettingAuthor::Flag(format!("--workspace-access {access}")),
            );
            self.access.choose(offer, &mut self.report);
        }
        self.given_access = self.access.clone();
        self.apply_floor_flag();
    }

    /// The profiles that parts without authority asked for hold for all of them.
    pub(super) fn hold_narrowed_profiles(&mut self) {
        let profiles: Vec<Profile> = self.profiles.iter().map(|profile| profile.value).collect();
        profiles.into_iter().for_each(|profile| self.hold(profile));
        if self.access.value < self.given_access.value {
            self.roots.cap_workspace(self.access.clone());
        }
    }

    fn apply_net_flag(&mut self) {
        let hosts = self.flags.hosts.first();
        let asked = match (self.flags.net, hosts) {
            (Some(NetMode::Full), Some(host)) => {
                let problem =
                    PolicyProblem::new(format!("with `--net full` nothing holds `--allow-host {host}`"));
                return self.report.problems.add(problem.fix("leave one of them out"));
            }
            (None | Some(NetMode::None), Some(host)) => (NetMode::Filtered, format!("--allow-host {host}")),
            (Some(net), _) => (net, format!("--net {net}")),
            (None, None) => return,
        };
        let (net, flag) = asked;
        let most = net_ceiling(self.chosen.value);
        let ceiling = SettingSlot::new("net", most, most, SettingAuthor::Profile(self.chosen.value));
        let offer = SettingSlot::new("net", net, net, SettingAuthor::Flag(flag));
        if net.exceeds(&most) {
            return self.report.excess(
                &offer.to_string(),
                &offer.by,
                &ceiling.named(),
                SectionAuthority::Narrows,
            );
        }
        self.net.choose(offer, &mut self.report);
    }

    /// A flag lowers the floor only where no file said that it holds.
    fn apply_floor_flag(&mut self) {
        let Some(asked) = &self.flags.floor else { return };
        let lowered =
            self.floor.lowered.iter().flat_map(|(controls, by)| controls.iter().map(move |c| (c, by)));
        let required = self.floor.required.iter().map(|(control, by)| (control, by));
        let missing = required.chain(lowered).find(|(control, _)| !asked.contains(control));
        let list: Vec<&str> = asked.iter().map(|control| control.word()).collect();
        let flag = format!("`--danger-required-controls {}`", list.join(","));
        if let Some((control, by)) = missing {
            let place = by.origin().map(|origin| format!(" at {origin}")).unwrap_or_default();
            let problem =
                PolicyProblem::new(format!("{flag} leaves out `{control}`, which is required{place}"));
            self.report.problems.add(problem.fix(format!("add `{control}`, or change the file")));
        } else if promises_limits(self.chosen.value) && asked.len() < Control::ALL.len() {
            let problem =
                PolicyProblem::new(format!("profile `{}` requires every control", self.chosen.value));
            self.report.problems.add(problem.fix(format!("leave {flag} out, or use another profile")));
        }
    }

    pub(super) fn finish(
        mut self,
        stack: &[LayerStep<'_>],
        files: &[PolicyFile],
    ) -> Result<EffectivePolicy, PolicyError> {
        self.containers.check(self.flags, &self.backend, &mut self.report);
        let (floor, floor_settings) = self.floor();
        let merged = merge::rules(stack, files, self.flags, self.net.value, &mut self.report);
        self.check_held();
        let (mut settings, limits) = (self.settings(), self.limits());
        settings.extend(floor_settings);
        let (roots, root_settings) = self.roots.finish(&self.given_access);
        settings.extend(root_settings);
        settings.extend(merged.settings);
        let policy = Policy {
            profile: self.profile().value,
            commands: self.commands.value,
            approval: self.approval.value,
            access: self.access.value,
            danger: self.flags.danger,
            net: self.net.value,
            unlisted_hosts: self.unlisted_hosts.value,
            backend: self.backend.value,
            container: self.containers.policy(),
            limits,
            floor,
            leaks: self.leaks(),
            home: self.flags.home.clone(),
            agent: self.flags.agent.clone(),
            rules: merged.rules,
            began: None,
        };
        self.report.problems.finish()?;
        Ok(EffectivePolicy { policy, roots, settings, requests: self.report.requests })
    }

    /// In the network of the host no proxy counts.
    fn check_held(&mut self) {
        if self.net.value != NetMode::Full {
            return;
        }
        let counted = self
            .limits
            .iter()
            .filter(|(limit, slot)| limit.is_of_network() && slot.by != SettingAuthor::Default);
        for (limit, slot) in counted {
            let problem =
                PolicyProblem::new(format!("with network mode `full` nothing holds `{}`", limit.key()));
            let problem = match slot.by.origin() {
                Some(origin) => problem.at(origin.clone()),
                None => problem,
            };
            self.report
                .problems
                .add(problem.fix("use `--net filtered` or `--net none`, or leave the limit out"));
        }
    }

    /// The strictest.
    fn profile(&self) -> &SettingSlot<Profile> {
        self.profiles.last().unwrap_or(&self.chosen)
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        self.limits.iter().for_each(|(limit, slot)| limit.set(&mut limits, slot.value));
        limits
    }

    fn leaks(&self) -> LeakPolicy {
        let mut leaks = LeakPolicy::default();
        self.leaks.iter().for_each(|(leak, slot)| *leak.of(&mut leaks) = slot.value);
        leaks
    }

    fn floor(&self) -> (Vec<Control>, Vec<EffectiveSetting>) {
        let promised = self.profiles.iter().any(|profile| promises_limits(profile.value));
        let lowered = self.floor.lowered.as_ref().map(|(controls, by)| (controls, by.clone()));
        let flag = self
            .flags
            .floor
            .as_ref()
            .map(|controls| (controls, SettingAuthor::Flag("--danger-required-controls".to_owned())));
        let least = if promised { None } else { flag.or(lowered) };
        let by = least.as_ref().map_or(SettingAuthor::Default, |(_, by)| by.clone());
        let in_force = |control: &Control| {
            least.as_ref().is_none_or(|(controls, _)| controls.contains(control))
                || self.floor.required.iter().any(|(required, _)| required == control)
        };
        let floor: Vec<Control> = Control::ALL.iter().copied().filter(in_force).collect();
        let setting = |value: String, by: &SettingAuthor| EffectiveSetting {
            key: "required_controls".to_owned(),
            value,
            layer: by.layer(),
            origin: by.origin().cloned(),
        };
        let words: Vec<&str> = floor.iter().map(|control| control.word()).collect();
        let mut settings = vec![setting(words.join(", "), &by)];
        settings.extend(self.floor.required.iter().map(|(control, by)| setting(control.to_string(), by)));
        (floor, settings)
    }

    fn settings(&self) -> Vec<EffectiveSetting> {
        let mut settings = vec![self.profile().setting()];
        settings.extend(self.minimum.as_ref().map(SettingSlot::setting));
        settings.extend([
            self.commands.setting(),
            self.approval.setting(),
            self.access.setting(),
            self.net.setting(),
            self.unlisted_hosts.setting(),
            self.backend.setting(),
        ]);
        settings.extend(self.containers.settings());
        settings.extend(self.limits.iter().map(|(_, slot)| slot.setting()));
        settings.extend(self.leaks.iter().map(|(_, slot)| slot.setting()));
        settings
    }
}

/// `strict` and `air-gapped` promise their numbers; elsewhere they are defaults.
fn promises_limits(profile: Profile) -> bool {
    matches!(profile, Profile::Strict | Profile::AirGapped)
}

/// The strictest minimum of all parts: one that a later part could lower would be none.
fn minimum(stack: &[LayerStep<'_>]) -> Option<SettingSlot<Profile>> {
    let given = |step: &LayerStep<'_>| Some(word(step, "minimum_profile", step.minimum_profile?));
    stack
        .iter()
        .filter_map(given)
        .reduce(|strictest, other| if strictest.value.exceeds(&other.value) { other } else { strictest })
}

/// A flag below the minimum is refused; a profile that no flag asked for is raised to it.
fn chosen(
    flags: &StartupFlags,
    stack: &[LayerStep<'_>],
    minimum: Option<&SettingSlot<Profile>>,
    report: &mut MergeReport,
) -> SettingSlot<Profile> {
    let authority = stack.iter().rev().filter(|step| step.standing == SectionAuthority::Authority);
    let file = || authority.clone().find_map(|step| Some(word(step, "profile", step.profile?)));
    let flag = flags.profile.map(|profile| {
        SettingSlot::new("profile", profile, profile, SettingAuthor::Flag(format!("--profile {profile}")))
    });
    let default =
        || SettingSlot::new("profile", Profile::Workspace, Profile::Workspace, SettingAuthor::Default);
    let chosen = flag.or_else(file).unwrap_or_else(default);
    let Some(minimum) = minimum.filter(|minimum| chosen.value.exceeds(&minimum.value)) else { return chosen };
    if matches!(chosen.by, SettingAuthor::Flag(_)) {
        let problem = PolicyProblem::new(format!("{chosen} is below {}", minimum.named()));
        report.problems.add(problem.fix(format!("use `--profile {}` or a stricter one", minimum.value)));
    }
    SettingSlot { key: "profile", ..minimum.clone() }
}

/// The profile that was chosen, and each stricter one after it.
fn narrowed(
    chosen: SettingSlot<Profile>,
    stack: &[LayerStep<'_>],
    report: &mut MergeReport,
) -> Vec<SettingSlot<Profile>> {
    let mut profiles = vec![chosen.clone()];
    let mut current = chosen;
    for step in stack.iter().filter(|step| step.standing != SectionAuthority::Authority) {
        let Some(given) = step.profile else { continue };
        let before = current.value;
        current.offer(word(step, "profile", given), step.standing, report);
        if current.value != before {
            profiles.push(current.clone());
        }
    }
    profiles
}

fn word<T: OrderedSetting + std::fmt::Display>(
    step: &LayerStep<'_>,
    key: &'static str,
    given: &WithSpan<T>,
) -> SettingSlot<T> {
    let span: TextSpan = given.span;
    SettingSlot::new(key, given.value.clone(), &given.value, SettingAuthor::file(step, span))
}
