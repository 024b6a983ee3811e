#include "isoloss/campaign/git.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <sstream>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/text_file.h"

namespace isoloss::campaign {
namespace {

/// A million commits by hash.
constexpr size_t kMostOutput = size_t{64} << 20;
constexpr std::chrono::hours kLongest{1};

/// Without the marks of lines, as an error quotes it.
std::string InQuotes(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return Printable(text);
}

}  // namespace

EnvironmentChanges WithoutGitRepository() {
  EnvironmentChanges changes;
  // Those of `git rev-parse --local-env-vars` that do not configure git.
  for (const char* name :
       {"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR",
        "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE",
        "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX",
        "GIT_SHALLOW_FILE", "GIT_WORK_TREE"}) {
    changes[name] = std::nullopt;
  }
  return changes;
}

std::optional<Git::Answer> Git::Run(
    const std::vector<std::string>& arguments) const {
  // It is asked to the end, whatever is interrupted: what it began for us is
  // tidied up with it.
  static const std::atomic<bool> kNever{false};
  const std::filesystem::path program = FindProgram("git");
  if (program.empty()) return std::nullopt;
  // A hook that fails or hangs would end in the middle of what is asked.
  std::vector<std::string> command = {program.string(), "-c",
                                      "advice.detachedHead=false", "-c",
                                      "core.hooksPath=/dev/null"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const ChildPlace place = {.folder = folder_,
                            .output = output_.path() / "output"};
  RemoveFile(place.output);
  EnvironmentChanges environment = WithoutGitRepository();
  environment["LC_ALL"] = "C";
  environment["GIT_TERMINAL_PROMPT"] = "0";
  const ChildResult result =
      RunChild(command, environment,
               std::chrono::duration_cast<std::chrono::seconds>(kLongest),
               kNever, place);
  return Answer{result.exit_code,
                ReadTextFile(place.output, "Ask git for less.", kMostOutput),
                result.errors};
}

std::optional<std::string> Git::Ask(
    const std::vector<std::string>& arguments) const {
  std::optional<Answer> answer = Run(arguments);
  if (!answer || answer->exit_code != 0) return std::nullopt;
  if (answer->output.ends_with('\n')) answer->output.pop_back();
  return answer->output;
}

std::string Git::Do(const std::vector<std::string>& arguments,
                    const std::string& action) const {
  std::optional<Answer> answer = Run(arguments);
  if (!answer) {
    ThrowError(ErrorKind::kIo,
               "git: it is in no folder of PATH, but is needed to {}. Install "
               "it.",
               action);
  }
  if (answer->exit_code != 0) {
    ThrowError(
        ErrorKind::kIo,
        "{}: git can't {} (exit code {}): {}. Mend that and start "
        "again.",
        folder_.string(), action, answer->exit_code,
        InQuotes(answer->errors.empty() ? answer->output : answer->errors));
  }
  if (answer->output.ends_with('\n')) answer->output.pop_back();
  return answer->output;
}

std::optional<Commit> Git::Find(const std::string& revision) const {
  if (revision.empty() || revision.starts_with('-')) return std::nullopt;
  const std::optional<std::string> hash =
      Ask({"rev-parse", "--verify", "--quiet", revision + "^{commit}"});
  if (!hash) return std::nullopt;
  // The subject comes last: it may hold anything but an end of line.
  const std::optional<std::string> text =
      Ask({"show", "--no-patch", "--no-show-signature", "--format=%H%n%aI%n%s",
           *hash, "--"});
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  Commit commit;
  std::getline(lines, commit.hash);
  std::getline(lines, commit.date);
  std::getline(lines, commit.subject);
  commit.subject = Printable(commit.subject);
  return commit;
}

Commit Git::Resolve(const std::string& revision,
                    const std::string& where) const {
  if (const std::optional<Commit> commit = Find(revision)) return *commit;
  ThrowError(ErrorKind::kConfig,
             "{}: `{}` names no commit of the git repository around {}. Give a "
             "commit, a branch or a tag that is there.{}",
             where, Printable(revision),
             std::filesystem::absolute(folder_).lexically_normal().string(),
             ShallowNote());
}

std::string Git::ShallowNote() const {
  if (Ask({"rev-parse", "--is-shallow-repository"}) != "true") return "";
  return " It is a shallow clone: `git fetch --unshallow` gets older commits.";
}

std::vector<std::string> Git::FirstParents() const {
  const std::optional<std::string> text =
      Ask({"rev-list", "--first-parent", "HEAD", "--"});
  std::vector<std::string> commits;
  if (!text) return commits;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) commits.push_back(line);
  std::ranges::reverse(commits);
  return commits;
}

}  // namespace isoloss::campaign
