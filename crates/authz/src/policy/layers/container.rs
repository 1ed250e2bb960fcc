//! The values of `[container]` while the parts of a stack are heard.

use std::path::PathBuf;

use ringfence_types::units::Duration;
use ringfence_types::{Backend, ImageName, OciRuntime};

use super::super::container::ContainerPolicy;
use super::super::format::ContainerTable;
use super::super::limits::Amount;
use super::super::problem::Problem;
use super::slot::{By, Only, Report, Said, Slot};
use super::{Flags, Setting, Standing, Step};

pub(super) struct Containers {
    images: Slot<Only<ImageName>>,
    signed_by: Slot<Only<String>>,
    runtime: Slot<Option<OciRuntime>>,
    engine: Slot<Said<PathBuf>>,
    pool: Slot<Said<u64>>,
    idle: Slot<Amount>,
    age: Slot<Amount>,
}

impl Containers {
    pub(super) fn new() -> Self {
        let default = ContainerPolicy::default();
        let time = |key, time: Duration| Slot::new(key, Amount::Of(time.0), time, By::Default);
        Self {
            images: Slot::new("container.image", Only(None), "any on the list", By::Default),
            signed_by: Slot::new("container.signed_by", Only(None), "nobody", By::Default),
            runtime: Slot::new("container.runtime", None, "the engine's", By::Default),
            engine: Slot::new("container.engine", Said(None), "the first that is found", By::Default),
            pool: Slot::new("container.pool", Said(None), "0", By::Default),
            idle: time("container.idle", default.idle),
            age: time("container.age", default.age),
        }
    }

    pub(super) fn apply(
        &mut self,
        step: &Step<'_>,
        table: &ContainerTable,
        flags: &Flags,
        report: &mut Report,
    ) {
        let by = |span| By::file(step, span);
        if let Some(given) = &table.image {
            let names: Vec<ImageName> = given.items.iter().map(|item| item.value.0.clone()).collect();
            let shown = names.iter().map(ImageName::as_str).collect::<Vec<_>>().join(", ");
            let offer = Slot::new("container.image", Only(Some(names)), shown, by(given.span));
            self.images.offer(offer, step.standing, report);
        }
        if let Some(given) = &table.signed_by {
            let keys: Vec<String> = given.items.iter().map(|item| item.value.0.clone()).collect();
            let shown = keys.join(", ");
            let offer = Slot::new("container.signed_by", Only(Some(keys)), shown, by(given.span));
            self.signed_by.offer(offer, step.standing, report);
        }
        if let Some(given) = &table.runtime {
            let offer = Slot::new("container.runtime", Some(given.value), given.value, by(given.span));
            self.runtime.offer(offer, step.standing, report);
        }
        if let Some((given, path)) =
            table.engine.as_ref().and_then(|given| Some((given, flags.expanded(&given.value)?)))
        {
            let offer = Slot::new("container.engine", Said(Some(path)), &given.value, by(given.span));
            self.engine.offer(offer, step.standing, report);
        }
        if let Some(given) = &table.pool {
            let offer = Slot::new("container.pool", Said(Some(given.value.0)), given.value.0, by(given.span));
            self.pool.offer(offer, step.standing, report);
        }
        for (key, given, slot) in
            [("container.idle", &table.idle, &mut self.idle), ("container.age", &table.age, &mut self.age)]
        {
            if let Some(given) = given {
                let offer = Slot::new(key, Amount::Of(given.value.0), given.value, by(given.span));
                slot.offer(offer, step.standing, report);
            }
        }
    }

    pub(super) fn apply_flags(&mut self, flags: &Flags, report: &mut Report) {
        if let Some(image) = &flags.image {
            let by = By::Flag(format!("--image {image}"));
            let offer = Slot::new("container.image", Only(Some(vec![image.clone()])), image, by);
            self.images.choose(offer, report);
        }
        if let Some(runtime) = flags.runtime {
            let by = By::Flag(format!("--runtime {runtime}"));
            self.runtime.choose(Slot::new("container.runtime", Some(runtime), runtime, by), report);
        }
        if let Some(engine) = &flags.engine {
            let shown = engine.display();
            let by = By::Flag(format!("--engine {shown}"));
            let offer = Slot::new("container.engine", Said(Some(engine.clone())), shown, by);
            self.engine.choose(offer, report);
        }
    }

    /// Neither an image nor a container is taken for granted from the other, and where something narrower asks for a container,
    /// whoever asked for another backend is told.
    pub(super) fn check(&self, flags: &Flags, backend: &Slot<Option<Backend>>, report: &mut Report) {
        let contained = backend.value == Some(Backend::Container);
        if let Some(asked) = flags.backend.filter(|asked| contained && *asked != Backend::Container) {
            report.excess(
                &format!("`--backend {asked}`"),
                &backend_flag(asked),
                &backend.named(),
                Standing::Narrows,
            );
        }
        if let Some(image) = flags.image.as_ref().filter(|_| !contained) {
            let problem =
                Problem::new(format!("`--image {image}` was named, but the backend is not `container`"));
            report.problems.add(problem.fix("use --backend container"));
        }
    }

    pub(super) fn policy(&self) -> ContainerPolicy {
        let time = |slot: &Slot<Amount>| match slot.value {
            Amount::Of(ms) => Duration(ms),
            Amount::Unlimited => Duration(u64::MAX),
        };
        let pool = self.pool.value.0.and_then(|count| usize::try_from(count).ok());
        ContainerPolicy {
            images: self.images.value.0.clone(),
            signed_by: self.signed_by.value.0.clone(),
            runtime: self.runtime.value,
            engine: self.engine.value.0.clone(),
            pool: pool.unwrap_or(0),
            idle: time(&self.idle),
            age: time(&self.age),
        }
    }

    /// What somebody has said: most policies say nothing of containers.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let all = [
            (&self.images.by, self.images.setting()),
            (&self.signed_by.by, self.signed_by.setting()),
            (&self.runtime.by, self.runtime.setting()),
            (&self.engine.by, self.engine.setting()),
            (&self.pool.by, self.pool.setting()),
            (&self.idle.by, self.idle.setting()),
            (&self.age.by, self.age.setting()),
        ];
        all.into_iter().filter(|(by, _)| !matches!(by, By::Default)).map(|(_, setting)| setting).collect()
    }
}

pub(super) fn backend_flag(backend: Backend) -> By {
    By::Flag(format!("--backend {backend}"))
}
