//! The values of `[container]` while the parts of a stack are heard.

use std::path::PathBuf;

use ringfence_authz::ContainerPolicy;
use ringfence_types::units::HumanDuration;
use ringfence_types::{Backend, ImageName, OciRuntime};

use super::super::format::ContainerTable;
use super::super::limits::LimitAmount;
use super::super::problem::PolicyProblem;
use super::setting_slot::{FixedSetting, MergeReport, NameSubset, SettingAuthor, SettingSlot};
use super::{EffectiveSetting, LayerStep, SectionAuthority, StartupFlags};

pub(super) struct ContainerLayerState {
    images: SettingSlot<NameSubset<ImageName>>,
    trusted_keys: SettingSlot<NameSubset<String>>,
    runtime: SettingSlot<Option<OciRuntime>>,
    engine: SettingSlot<FixedSetting<PathBuf>>,
    pool: SettingSlot<FixedSetting<u64>>,
    idle: SettingSlot<LimitAmount>,
    age: SettingSlot<LimitAmount>,
}

impl ContainerLayerState {
    pub(super) fn new() -> Self {
        let default = ContainerPolicy::default();
        let time = |key, time: HumanDuration| {
            SettingSlot::new(key, LimitAmount::Of(time.0), time, SettingAuthor::Default)
        };
        Self {
            images: SettingSlot::new(
                "container.image",
                NameSubset(None),
                "any on the list",
                SettingAuthor::Default,
            ),
            trusted_keys: SettingSlot::new(
                "container.trusted_keys",
                NameSubset(None),
                "nobody",
                SettingAuthor::Default,
            ),
            runtime: SettingSlot::new("container.runtime", None, "the engine's", SettingAuthor::Default),
            engine: SettingSlot::new(
                "container.engine_socket",
                FixedSetting(None),
                "the first that is found",
                SettingAuthor::Default,
            ),
            pool: SettingSlot::new(
                "container.warm_containers",
                FixedSetting(None),
                "0",
                SettingAuthor::Default,
            ),
            idle: time("container.max_idle", default.max_idle),
            age: time("container.max_age", default.max_age),
        }
    }

    pub(super) fn apply(
        &mut self,
        step: &LayerStep<'_>,
        table: &ContainerTable,
        flags: &StartupFlags,
        report: &mut MergeReport,
    ) {
        let by = |span| SettingAuthor::file(step, span);
        if let Some(given) = &table.image {
            let names: Vec<ImageName> = given.items.iter().map(|item| item.value.0.clone()).collect();
            let shown = names.iter().map(ImageName::as_str).collect::<Vec<_>>().join(", ");
            let offer = SettingSlot::new("container.image", NameSubset(Some(names)), shown, by(given.span));
            self.images.offer(offer, step.standing, report);
        }
        if let Some(given) = &table.trusted_keys {
            let keys: Vec<String> = given.items.iter().map(|item| item.value.0.clone()).collect();
            let shown = keys.join(", ");
            let offer =
                SettingSlot::new("container.trusted_keys", NameSubset(Some(keys)), shown, by(given.span));
            self.trusted_keys.offer(offer, step.standing, report);
        }
        if let Some(given) = &table.runtime {
            let offer = SettingSlot::new("container.runtime", Some(given.value), given.value, by(given.span));
            self.runtime.offer(offer, step.standing, report);
        }
        if let Some((given, path)) =
            table.engine_socket.as_ref().and_then(|given| Some((given, flags.expanded(&given.value)?)))
        {
            let offer = SettingSlot::new(
                "container.engine_socket",
                FixedSetting(Some(path)),
                &given.value,
                by(given.span),
            );
            self.engine.offer(offer, step.standing, report);
        }
        if let Some(given) = &table.warm_containers {
            let offer = SettingSlot::new(
                "container.warm_containers",
                FixedSetting(Some(given.value.0)),
                given.value.0,
                by(given.span),
            );
            self.pool.offer(offer, step.standing, report);
        }
        for (key, given, slot) in [
            ("container.max_idle", &table.max_idle, &mut self.idle),
            ("container.max_age", &table.max_age, &mut self.age),
        ] {
            if let Some(given) = given {
                let offer =
                    SettingSlot::new(key, LimitAmount::Of(given.value.0), given.value, by(given.span));
                slot.offer(offer, step.standing, report);
            }
        }
    }

    pub(super) fn apply_flags(&mut self, flags: &StartupFlags, report: &mut MergeReport) {
        if let Some(image) = &flags.image {
            let by = SettingAuthor::Flag(format!("--image {image}"));
            let offer = SettingSlot::new("container.image", NameSubset(Some(vec![image.clone()])), image, by);
            self.images.choose(offer, report);
        }
        if let Some(runtime) = flags.runtime {
            let by = SettingAuthor::Flag(format!("--runtime {runtime}"));
            self.runtime.choose(SettingSlot::new("container.runtime", Some(runtime), runtime, by), report);
        }
        if let Some(engine) = &flags.engine {
            let shown = engine.display();
            let by = SettingAuthor::Flag(format!("--engine {shown}"));
            let offer =
                SettingSlot::new("container.engine_socket", FixedSetting(Some(engine.clone())), shown, by);
            self.engine.choose(offer, report);
        }
    }

    /// Neither an image nor a container is taken for granted from the other, and where something narrower asks for a container,
    /// the author of a request for another backend is told.
    pub(super) fn check(
        &self,
        flags: &StartupFlags,
        backend: &SettingSlot<Option<Backend>>,
        report: &mut MergeReport,
    ) {
        let contained = backend.value == Some(Backend::Container);
        if let Some(asked) = flags.backend.filter(|asked| contained && *asked != Backend::Container) {
            report.excess(
                &format!("`--backend {asked}`"),
                &backend_flag(asked),
                &backend.named(),
                SectionAuthority::Narrows,
            );
        }
        if let Some(image) = flags.image.as_ref().filter(|_| !contained) {
            let problem = PolicyProblem::new(format!(
                "`--image {image}` was named, but the backend is not `container`"
            ));
            report.problems.add(problem.fix("use --backend container"));
        }
    }

    pub(super) fn policy(&self) -> ContainerPolicy {
        let time = |slot: &SettingSlot<LimitAmount>| match slot.value {
            LimitAmount::Of(ms) => HumanDuration(ms),
            LimitAmount::Unlimited => HumanDuration(u64::MAX),
        };
        let pool = self.pool.value.0.and_then(|count| usize::try_from(count).ok());
        ContainerPolicy {
            images: self.images.value.0.clone(),
            trusted_keys: self.trusted_keys.value.0.clone(),
            runtime: self.runtime.value,
            engine_socket: self.engine.value.0.clone(),
            warm_containers: pool.unwrap_or(0),
            max_idle: time(&self.idle),
            max_age: time(&self.age),
        }
    }

    /// What a file or a flag has said: most policies say nothing of containers.
    pub(super) fn settings(&self) -> Vec<EffectiveSetting> {
        let all = [
            (&self.images.by, self.images.setting()),
            (&self.trusted_keys.by, self.trusted_keys.setting()),
            (&self.runtime.by, self.runtime.setting()),
            (&self.engine.by, self.engine.setting()),
            (&self.pool.by, self.pool.setting()),
            (&self.idle.by, self.idle.setting()),
            (&self.age.by, self.age.setting()),
        ];
        all.into_iter()
            .filter(|(by, _)| !matches!(by, SettingAuthor::Default))
            .map(|(_, setting)| setting)
            .collect()
    }
}

pub(super) fn backend_flag(backend: Backend) -> SettingAuthor {
    SettingAuthor::Flag(format!("--backend {backend}"))
}
