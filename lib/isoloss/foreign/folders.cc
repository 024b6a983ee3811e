#include "isoloss/foreign/folders.h"

#include <algorithm>
#include <iterator>
#include <system_error>

#include "isoloss/base/error.h"

namespace isoloss::foreign {

namespace fs = std::filesystem;

std::vector<fs::path> EntriesOf(
    const fs::path& folder,
    const std::function<bool(const fs::directory_entry&)>& is_wanted) {
  constexpr size_t kMostEntries = 10'000;
  std::vector<fs::path> found;
  size_t seen = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end;
       !error && entry != end && found.size() < kMostEntries;
       entry.increment(error)) {
    if (++seen > 10 * kMostEntries) break;
    std::error_code unknown;
    if (entry->is_symlink(unknown) || !is_wanted(*entry)) continue;
    found.push_back(entry->path());
  }
  if (error) {
    ThrowError(ErrorKind::kIo,
               "{}: the folder can't be read: {}. Check its permissions.",
               folder.string(), error.message());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<fs::path> RunFoldersIn(
    const fs::path& folder, int levels,
    const std::function<bool(const fs::path&)>& holds_run) {
  if (holds_run(folder)) return {folder};
  std::vector<fs::path> found;
  if (levels == 0) return found;
  const auto is_folder = [](const fs::directory_entry& entry) {
    std::error_code error;
    return entry.is_directory(error);
  };
  for (const fs::path& below : EntriesOf(folder, is_folder)) {
    std::ranges::move(RunFoldersIn(below, levels - 1, holds_run),
                      std::back_inserter(found));
  }
  return found;
}

std::vector<fs::path> FilesOfRunsIn(const fs::path& folder,
                                    std::string_view extension) {
  const auto is_wanted = [&](const fs::directory_entry& entry) {
    std::error_code error;
    return entry.is_regular_file(error) &&
           entry.path().extension() == extension;
  };
  const auto holds_run = [&](const fs::path& one) {
    return !EntriesOf(one, is_wanted).empty();
  };
  std::vector<fs::path> files;
  for (const fs::path& run : RunFoldersIn(folder, 1, holds_run)) {
    std::ranges::move(EntriesOf(run, is_wanted), std::back_inserter(files));
  }
  return files;
}

}  // namespace isoloss::foreign
