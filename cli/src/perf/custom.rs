//! `--plan FILE`: a plan of the user's own in place of the built-in ones.

use vervain_collectives::plan::{Ranks, Verified};

use super::data::collective;
use super::settings::Settings;
use crate::exit::Failure;
use crate::plan;

/// The plan that the settings name, proven right for this number of ranks; `None` if they name none.
pub fn load(settings: &Settings, ranks: u32) -> Result<Option<Verified>, Failure> {
    let Some(file) = &settings.plan else { return Ok(None) };
    let plan = plan::read(file)?;
    let wanted = collective(settings.benchmark);
    if plan.collective != wanted {
        return Err(Failure::usage(format!(
            "--plan {} is a plan for {}, not for {wanted}",
            file.display(),
            plan.collective
        )));
    }
    plan.verify(Ranks::one(ranks)).map(Some).map_err(|defect| Failure::wrong(defect.to_string()))
}

/// Whether the plan, if there is one, lets the output lie over the input.
pub fn can_be_in_place(plan: Option<&Verified>) -> bool {
    plan.is_none_or(|plan| plan.in_place().is_ok())
}
