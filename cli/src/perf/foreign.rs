//! Options of nccl-tests that mean nothing on host memory: harmless values pass, others are refused by name.

use clap::Args;

/// Accepted so that command lines written for nccl-tests run unchanged.
#[derive(Args, Clone, Debug, Default)]
pub struct Foreign {
    #[arg(short = 't', long = "nthreads", hide = true)]
    threads: Option<String>,
    #[arg(short = 'g', long = "ngpus", hide = true)]
    gpus: Option<String>,
    #[arg(short = 'p', long = "parallel_init", hide = true)]
    parallel_init: Option<String>,
    #[arg(short = 'z', long = "blocking", hide = true)]
    blocking: Option<String>,
    #[arg(short = 'y', long = "stream_null", hide = true)]
    stream_null: Option<String>,
    #[arg(short = 'G', long = "cudagraph", hide = true)]
    cuda_graph: Option<String>,
    #[arg(short = 'C', long = "report_cputime", hide = true)]
    cpu_time: Option<String>,
    #[arg(short = 'x', long = "cta_policy", hide = true)]
    cta_policy: Option<String>,
    #[arg(short = 'D', long = "device_implementation", hide = true)]
    device_implementation: Option<String>,
    #[arg(short = 'V', long = "device_cta_count", hide = true)]
    device_ctas: Option<String>,
    #[arg(short = 'M', long = "memory_report", hide = true)]
    memory_report: Option<String>,
    #[arg(short = 'K', hide = true)]
    skip: Option<String>,
}

impl Foreign {
    /// `Err` names the first option whose value asks for something that does not exist here.
    pub fn check(&self) -> Result<(), String> {
        const PROCESSES: &str = "a rank is one process on host memory; start more with --ranks N";
        const DEVICE: &str = "there is no device here; ranks work on host memory";
        let rules: [(&Option<String>, &str, &[&str], &str); 12] = [
            (&self.threads, "-t/--nthreads", &["1"], PROCESSES),
            (&self.gpus, "-g/--ngpus", &["0", "1"], PROCESSES),
            (&self.parallel_init, "-p/--parallel_init", &["0", "1"], "ranks always start in parallel"),
            (&self.blocking, "-z/--blocking", &["0", "1"], "every call blocks until it is complete"),
            (&self.stream_null, "-y/--stream_null", &["0", "1"], DEVICE),
            (&self.cuda_graph, "-G/--cudagraph", &["0"], DEVICE),
            (&self.cpu_time, "-C/--report_cputime", &["0"], "calls block, so processor time and wall time are one"),
            (&self.cta_policy, "-x/--cta_policy", &["0"], DEVICE),
            (&self.device_implementation, "-D/--device_implementation", &["0"], DEVICE),
            (&self.device_ctas, "-V/--device_cta_count", &[], DEVICE),
            (&self.memory_report, "-M/--memory_report", &["0"], "memory of ranks is seen with `ps` and `top`"),
            (&self.skip, "-K", &["0"], "no part of a measurement can be skipped"),
        ];
        for (value, name, harmless, reason) in rules {
            match value {
                Some(value) if !harmless.contains(&value.as_str()) => {
                    return Err(format!("{name} {value} means nothing here: {reason}"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_values_pass() {
        let some = |value: &str| Some(value.to_owned());
        let foreign = Foreign { threads: some("1"), gpus: some("1"), cuda_graph: some("0"), ..Foreign::default() };
        assert_eq!(foreign.check(), Ok(()));
        assert_eq!(Foreign::default().check(), Ok(()));
    }

    #[test]
    fn others_are_refused_by_name() {
        let eight = || Some("8".to_owned());
        let sentence = Foreign { gpus: eight(), ..Foreign::default() }.check().unwrap_err();
        assert!(sentence.contains("-g/--ngpus 8") && sentence.contains("--ranks"), "{sentence}");
        let sentence = Foreign { device_ctas: eight(), ..Foreign::default() }.check().unwrap_err();
        assert!(sentence.contains("-V/--device_cta_count"), "{sentence}");
    }
}
