// Lists what folders of other programs hold. Links are not followed.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

namespace isoloss::foreign {

/// Returns what the folder itself holds and `is_wanted`, by name. A folder is
/// looked through to a bounded number of entries.
/// Errors   IoError if the folder can't be read.
std::vector<std::filesystem::path> EntriesOf(
    const std::filesystem::path& folder,
    const std::function<bool(const std::filesystem::directory_entry&)>&
        is_wanted);

/// Returns the folders that hold a run: `folder` itself, else the nearest ones
/// below it, to the depth of `levels`.
std::vector<std::filesystem::path> RunFoldersIn(
    const std::filesystem::path& folder, int levels,
    const std::function<bool(const std::filesystem::path&)>& holds_run);

/// Returns the files with that extension, such as ".wandb", of the run that the
/// folder holds, or of runs in folders right below it.
std::vector<std::filesystem::path> FilesOfRunsIn(
    const std::filesystem::path& folder, std::string_view extension);

}  // namespace isoloss::foreign
