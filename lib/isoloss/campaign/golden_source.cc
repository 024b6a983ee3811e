#include "isoloss/campaign/golden_source.h"

#include <optional>
#include <string>

#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "isoloss/campaign/git.h"

namespace isoloss::campaign {

void CheckSourceIsCommitted(const std::filesystem::path& folder) {
  const std::string commit = GetBuildInfo().commit;
  if (commit == "unknown" || commit.ends_with("-dirty")) {
    ThrowError(ErrorKind::kConfig,
               "golden update: this program was built from commit `{}`, but a "
               "golden must be of a source that others have. Commit it and "
               "build again, or try it out with --draft.",
               commit);
  }
  const std::optional<std::string> changes =
      Git(folder).Ask({"status", "--porcelain"});
  if (!changes || changes->empty()) return;
  ThrowError(ErrorKind::kConfig,
             "golden update: the work tree of {} has changes that are not "
             "committed, the first `{}`. Commit them, or try it out with "
             "--draft.",
             folder.string(), changes->substr(0, changes->find('\n')));
}

}  // namespace isoloss::campaign
