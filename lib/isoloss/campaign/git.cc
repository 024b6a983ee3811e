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
#include "isoloss/campaign/child_process.h"

namespace isoloss::campaign {
namespace {

/// A million commits by hash.
constexpr size_t kMostOutput = size_t{64} << 20;
constexpr std::chrono::hours kLongest{1};

/// Without the marks of lines, as an error quotes it.
std::string Quoted(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return Printable(text);
}

}  // namespace

std::optional<Git::Answer> Git::Run(
    const std::vector<std::string>& arguments) const {
  // It is asked to the end, whatever is interrupted: what it began for us is
  // tidied up with it.
  static const std::atomic<bool> kNever{false};
  const std::filesystem::path program = FindProgram("git");
  if (program.empty()) return std::nullopt;
  std::vector<std::string> command = {program.string(), "-c",
                                      "advice.detachedHead=false"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const ChildPlace place = {.folder = folder_,
                            .output = output_.path() / "output"};
  RemoveFile(place.output);
  const ChildResult result =
      RunChild(command, {{"LC_ALL", "C"}, {"GIT_TERMINAL_PROMPT", "0"}},
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
        Quoted(answer->errors.empty() ? answer->output : answer->errors));
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
             "commit, a branch or a tag that is there.",
             where, Printable(revision),
             std::filesystem::absolute(folder_).lexically_normal().string());
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
