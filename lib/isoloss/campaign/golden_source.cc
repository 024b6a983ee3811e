#include "isoloss/campaign/golden_source.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>

#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"

namespace isoloss::campaign {
namespace {

/// What `git -C folder status` prints, one line a change; empty outside of a
/// work tree or without git.
std::optional<std::string> GitStatus(const std::filesystem::path& folder) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) ThrowErrno(folder, "ask git about");
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const pid_t child = fork();
  if (child < 0) ThrowErrno(folder, "ask git about");
  if (child == 0) {
    dup2(to.get(), STDOUT_FILENO);
    close(STDERR_FILENO);
    execlp("git", "git", "-C", folder.c_str(), "status", "--porcelain",
           static_cast<char*>(nullptr));
    _exit(127);
  }
  to = Descriptor();
  std::string text;
  std::array<char, 4096> chunk;
  for (;;) {
    const ssize_t count = read(from.get(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(chunk.data(), static_cast<size_t>(count));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return text;
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

}  // namespace isoloss::campaign
