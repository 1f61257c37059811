//! Libraries that vervain would load at run time: looked for by name, not opened.

use std::fs;
use std::path::{Path, PathBuf};

use super::finding::Finding;

/// RDMA: the library, and a device for it.
pub fn verbs() -> Finding {
    let install = "apt-get install libibverbs1 ibverbs-providers (Debian), dnf install libibverbs (Fedora)";
    let Some(library) = find("libibverbs.so.1") else {
        return Finding::absent("verbs", "libibverbs.so.1 not found", install);
    };
    let devices = names_in(Path::new("/sys/class/infiniband"));
    if devices.is_empty() {
        let remedy = "load the driver of your NIC, or `modprobe rdma_rxe` for RDMA over an ordinary one";
        return Finding::warn(
            "verbs",
            format!("{}, but no device in /sys/class/infiniband", library.display()),
            remedy,
        );
    }
    Finding::ok("verbs", format!("{}, devices {}", library.display(), devices.join(" ")))
}

/// GPUs: the driver's library.
pub fn cuda() -> Finding {
    match find("libcuda.so.1") {
        Some(library) if Path::new("/dev/nvidiactl").exists() => Finding::ok("cuda", library.display().to_string()),
        Some(library) => Finding::warn(
            "cuda",
            format!("{}, but no /dev/nvidiactl", library.display()),
            "load the driver with `nvidia-modprobe`, or start the container with its GPUs",
        ),
        None => Finding::absent(
            "cuda",
            "libcuda.so.1 not found (no NVIDIA driver)",
            "everything else works without it; it comes with the GPU driver",
        ),
    }
}

/// Where the loader would find a library.
fn find(name: &str) -> Option<PathBuf> {
    folders().into_iter().map(|folder| folder.join(name)).find(|path| path.exists())
}

/// The loader's folders: the environment's, the configured ones, the built-in ones.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("LD_LIBRARY_PATH").map(|paths| std::env::split_paths(&paths).collect()).unwrap_or_default();
    for file in names_in(Path::new("/etc/ld.so.conf.d")) {
        folders.extend(configured(&fs::read_to_string(Path::new("/etc/ld.so.conf.d").join(file)).unwrap_or_default()));
    }
    folders.extend(configured(&fs::read_to_string("/etc/ld.so.conf").unwrap_or_default()));
    folders.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    folders.extend(["/lib", "/usr/lib", "/usr/local/lib"].map(|folder| Path::new(folder).join(&multiarch)));
    folders
}

/// The folders that a configuration file lists.
fn configured(text: &str) -> Vec<PathBuf> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| line.starts_with('/')).map(PathBuf::from).collect()
}

/// What a folder holds, in order; nothing if there is no such folder.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_folders_are_absolute_paths_outside_of_comments() {
        let text = "# libc default\n/usr/local/lib\n  /opt/lib # mine\ninclude /etc/ld.so.conf.d/*.conf\n";
        assert_eq!(configured(text), [PathBuf::from("/usr/local/lib"), PathBuf::from("/opt/lib")]);
    }

    #[test]
    fn the_loader_finds_the_c_library_and_nothing_invented() {
        assert!(find("libc.so.6").is_some() || !cfg!(target_env = "gnu"));
        assert_eq!(find("libno-such-library.so.1"), None);
    }
}
