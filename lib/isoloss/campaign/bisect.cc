#include "isoloss/campaign/bisect.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/temporary_folder.h"
#include "isoloss/campaign/child_process.h"
#include "isoloss/campaign/interrupt.h"

namespace isoloss::campaign {
namespace {

namespace fs = std::filesystem;

/// A work tree beside the user's, which stays as it is. It has its own
/// refs/bisect, so that a bisection of the user's goes on undisturbed.
class WorkTree {
 public:
  WorkTree(const Git& repository, const std::string& commit)
      : repository_(repository), folder_(scratch_.path() / "tree") {
    repository_.Do({"worktree", "add", "--detach", folder_.string(), commit},
                   "make a work tree");
  }
  ~WorkTree() {
    try {
      repository_.Ask({"worktree", "remove", "--force", folder_.string()});
    } catch (const Error&) {
      // `git worktree prune` forgets it once the folder is gone.
    }
  }
  WorkTree(const WorkTree&) = delete;
  WorkTree& operator=(const WorkTree&) = delete;

  const fs::path& folder() const { return folder_; }

 private:
  const Git& repository_;
  TemporaryFolder scratch_;
  fs::path folder_;
};

/// The last line of a file that is not empty, printable and short.
std::string LastLine(const fs::path& file) {
  constexpr std::streamoff kTail = 4096;
  constexpr size_t kMost = 200;
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) return "";
  const std::streamoff size = stream.tellg();
  stream.seekg(std::max<std::streamoff>(0, size - kTail));
  std::string last;
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \t\r") != line.npos) last = line;
  }
  return Printable(last.substr(0, kMost));
}

/// "[HASH] ..." of a line of git's log of a bisection.
std::string HashIn(std::string_view line) {
  const size_t begin = line.find('[');
  const size_t end = line.find(']');
  if (begin == line.npos || end == line.npos || end < begin) return "";
  return std::string(line.substr(begin + 1, end - begin - 1));
}

class Bisection {
 public:
  explicit Bisection(const BisectPlan& plan)
      : plan_(plan),
        repository_(plan.repository),
        good_(repository_.Resolve(plan.good, "--good")),
        bad_(repository_.Resolve(plan.bad, "--bad")) {
    RequireOrder();
    std::error_code error;
    if (plan.output.empty() || fs::is_directory(plan.output, error)) return;
    ThrowError(ErrorKind::kConfig,
               "{}: it is no folder, but --output names one. Make it, or give "
               "another.",
               plan.output.string());
  }

  BisectResult Run() && {
    const WorkTree tree(repository_, bad_.hash);
    tree_ = tree.folder();
    const Git git(tree_);
    if (TryEnd(git, bad_, BisectMark::kBad, "--bad") &&
        TryEnd(git, good_, BisectMark::kGood, "--good")) {
      Search(git);
    }
    result_.interrupted = InterruptFlag().load();
    return std::move(result_);
  }

 private:
  void RequireOrder() const {
    if (good_.hash == bad_.hash) {
      ThrowError(ErrorKind::kConfig,
                 "history bisect: --good and --bad are both commit {}, but two "
                 "are needed. Give an earlier one that is good.",
                 good_.Short());
    }
    if (repository_.Ask(
            {"merge-base", "--is-ancestor", good_.hash, bad_.hash})) {
      return;
    }
    ThrowError(ErrorKind::kConfig,
               "history bisect: --good is {}, which is not among the commits "
               "that {} (--bad) comes from, so that what is between them means "
               "nothing. Give a good commit from before, for example the one "
               "that `git merge-base {} {}` prints.",
               good_.Short(), bad_.Short(), good_.Short(), bad_.Short());
  }

  /// False if a signal came.
  bool TryEnd(const Git& git, const Commit& commit, BisectMark wanted,
              const char* option) {
    const std::optional<BisectStep> step = Try(git, commit);
    if (!step) return false;
    if (step->mark == wanted) return true;
    ThrowError(ErrorKind::kConfig,
               "history bisect: {} is {}, but the command finds it {} ({}{}). "
               "A search between wrong ends misleads: give another commit, or "
               "look at the command.",
               option, commit.Short(), BisectMarkName(step->mark),
               WhatHappened(*step),
               step->last_words.empty() ? "" : "; " + step->last_words);
  }

  static std::string WhatHappened(const BisectStep& step) {
    const char* what = step.built ? "the command" : "the build";
    if (!step.ended) return fmt::format("{} took too long", what);
    return fmt::format("exit code {} of {}", step.exit_code, what);
  }

  void Search(const Git& git) {
    // Its own check-outs fail where a build left something in the way.
    std::vector<std::string> start = {"bisect", "start", "--no-checkout"};
    if (plan_.first_parent) start.emplace_back("--first-parent");
    start.insert(start.end(), {bad_.hash, good_.hash, "--"});
    Tell(git.Do(start, "begin to bisect"));
    while (!ReadEnd(git)) {
      const Commit commit = git.Resolve("BISECT_HEAD", "history bisect");
      const std::optional<BisectStep> step = Try(git, commit);
      if (!step) return;
      Mark(git, commit, step->mark);
    }
  }

  void Mark(const Git& git, const Commit& commit, BisectMark mark) {
    const char* word = mark == BisectMark::kGood  ? "good"
                       : mark == BisectMark::kBad ? "bad"
                                                  : "skip";
    const std::vector<std::string> arguments = {"bisect", word, commit.hash};
    // It ends with a code of its own where only skipped commits are left.
    const std::optional<std::string> said = git.Ask(arguments);
    if (said) return Tell(*said);
    if (!ReadEnd(git)) git.Do(arguments, "go on to the next commit");
  }

  void Tell(const std::string& said) const {
    if (plan_.on_progress && said.starts_with("Bisecting: ")) {
      plan_.on_progress(said.substr(0, said.find('\n')));
    }
  }

  /// Whether git's log says that the search is over.
  bool ReadEnd(const Git& git) {
    std::istringstream log(git.Do({"bisect", "log"}, "read its bisection"));
    std::vector<Commit> candidates;
    for (std::string line; std::getline(log, line);) {
      if (line.starts_with("# first bad commit: ")) {
        result_.first_bad = git.Find(HashIn(line));
      } else if (line.starts_with("# possible first bad commit: ")) {
        if (const auto commit = git.Find(HashIn(line))) {
          candidates.push_back(*commit);
        }
      }
    }
    std::ranges::reverse(candidates);
    result_.candidates = std::move(candidates);
    return result_.first_bad.has_value() || !result_.candidates.empty();
  }

  /// Checks out, builds and judges; empty if a signal came.
  std::optional<BisectStep> Try(const Git& git, const Commit& commit) {
    git.Do({"checkout", "--force", "--quiet", "--detach", commit.hash},
           "check out " + commit.Short());
    const auto begin = std::chrono::steady_clock::now();
    BisectStep step = {.commit = commit};
    const fs::path output =
        (plan_.output.empty() ? scratch_.path() : plan_.output) /
        (commit.Short() + ".txt");
    RemoveFile(output);
    ChildResult ran;
    if (!plan_.build.empty()) {
      ran = RunThere({"/bin/sh", "-c", plan_.build}, output);
      step.built = ran.ended && ran.exit_code == 0;
    }
    if (step.built && !InterruptFlag().load()) {
      // The shell finds the program, and says 127 where there is none.
      std::vector<std::string> command = {"/bin/sh", "-c", "exec \"$@\"",
                                          "isoloss"};
      command.insert(command.end(), plan_.command.begin(), plan_.command.end());
      ran = RunThere(command, output);
    }
    if (InterruptFlag().load()) return std::nullopt;
    step.ended = ran.ended;
    step.exit_code = ran.exit_code;
    step.last_words = LastLine(output);
    step.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count();
    step.mark = MarkFor(step);
    result_.steps.push_back(step);
    if (plan_.on_step) plan_.on_step(step);
    return step;
  }

  BisectMark MarkFor(const BisectStep& step) const {
    if (!step.ended) return BisectMark::kSkipped;
    const std::optional<BisectMark> mark = MarkOf(step.exit_code);
    if (!mark) {
      ThrowError(
          ErrorKind::kIo,
          "history bisect: {} of commit {} ({}{}) had exit code {}, but "
          "from 128 on they are of signals and say nothing. If that is a "
          "fault of the commit, have the command end with 1 or 125 in "
          "its place.",
          step.built ? "the command" : "the build", step.commit.Short(),
          step.commit.subject,
          step.last_words.empty() ? "" : "; " + step.last_words,
          step.exit_code);
    }
    return step.built ? *mark : BisectMark::kSkipped;
  }

  ChildResult RunThere(const std::vector<std::string>& command,
                       const fs::path& output) const {
    return RunChild(
        command, WithoutGitRepository(), plan_.limit, InterruptFlag(),
        {.folder = tree_, .output = output, .errors_to_output = true});
  }

  const BisectPlan& plan_;
  Git repository_;
  Commit good_;
  Commit bad_;
  TemporaryFolder scratch_;
  fs::path tree_;
  BisectResult result_;
};

}  // namespace

const char* BisectMarkName(BisectMark mark) {
  switch (mark) {
    case BisectMark::kGood:
      return "good";
    case BisectMark::kBad:
      return "bad";
    case BisectMark::kSkipped:
      return "skipped";
  }
  return "";
}

std::optional<BisectMark> MarkOf(int exit_code) {
  if (exit_code == 0) return BisectMark::kGood;
  if (exit_code == 1) return BisectMark::kBad;
  if (exit_code < 128) return BisectMark::kSkipped;
  return std::nullopt;
}

BisectResult Bisect(const BisectPlan& plan) {
  ListenToSignals();
  ListenToClosedPipes();
  return Bisection(plan).Run();
}

}  // namespace isoloss::campaign
