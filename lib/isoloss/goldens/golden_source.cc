#include "isoloss/goldens/golden_source.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "isoloss/base/temporary_folder.h"
#include "isoloss/base/text_file.h"
#include "isoloss/system/child_process.h"

namespace isoloss::goldens {
namespace {

/// Git sets these variables for its hooks and for `git rebase --exec`. With
/// them git would look at another repository than the one around its folder.
constexpr const char* kGitPlaces[] = {"GIT_ALTERNATE_OBJECT_DIRECTORIES",
                                      "GIT_COMMON_DIR",
                                      "GIT_DIR",
                                      "GIT_INDEX_FILE",
                                      "GIT_NAMESPACE",
                                      "GIT_OBJECT_DIRECTORY",
                                      "GIT_PREFIX",
                                      "GIT_WORK_TREE"};

/// Returns the output of `git status --porcelain` in `folder`; nothing without
/// git or a repository.
std::optional<std::string> GitStatus(const std::filesystem::path& folder) {
  constexpr std::chrono::hours kLongest{1};
  constexpr size_t kMostOutput = size_t{64} << 20;
  static const std::atomic<bool> kNever{false};
  const std::filesystem::path git = system::FindProgram("git");
  if (git.empty()) return std::nullopt;
  system::EnvironmentChanges environment;
  for (const char* place : kGitPlaces) environment[place] = std::nullopt;
  const TemporaryFolder temporary;
  const system::ChildPlace place = {.folder = folder,
                                    .output = temporary.path() / "status"};
  const system::ChildResult result =
      system::RunChild({git.string(), "status", "--porcelain"}, environment,
                       kLongest, kNever, place);
  if (result.exit_code != 0) return std::nullopt;
  return ReadTextFile(place.output, "Commit the changes.", kMostOutput);
}

}  // namespace

void CheckSourceIsCommitted(const std::filesystem::path& folder) {
  const std::string commit = GetBuildInfo().commit;
  if (commit == "unknown" || commit.ends_with("-dirty")) {
    ThrowError(ErrorKind::kConfig,
               "golden update: this program was built from commit `{}`, but a "
               "golden must be of a source that others have. Commit it and "
               "build again, or try it out with --draft.",
               commit);
  }
  const std::optional<std::string> changes = GitStatus(folder);
  if (!changes || changes->empty()) return;
  ThrowError(ErrorKind::kConfig,
             "golden update: the work tree of {} has changes that are not "
             "committed, the first `{}`. Commit them, or try it out with "
             "--draft.",
             folder.string(), changes->substr(0, changes->find('\n')));
}

}  // namespace isoloss::goldens
