// A git repository, asked by the program git.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/temporary_folder.h"
#include "isoloss/campaign/child_process.h"

namespace isoloss::campaign {

/// A commit as people know it.
struct Commit {
  std::string hash = {};     ///< in full
  std::string date = {};     ///< of its author, ISO 8601
  std::string subject = {};  ///< as it may be shown

  /// The first 12 digits.
  std::string Short() const { return hash.substr(0, 12); }
};

/// Takes away the variables that tell git of another repository than the one
/// around its folder. Git sets them for hooks and for `git rebase --exec`.
EnvironmentChanges WithoutGitRepository();

/// Runs no hook of the repository.
class Git {
 public:
  /// Of the repository around `folder`, if there is one.
  explicit Git(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }

  /// What `git ARGUMENTS` prints, without its last line end; empty if git is
  /// not there or ends with another code than 0.
  std::optional<std::string> Ask(
      const std::vector<std::string>& arguments) const;
  /// Likewise.
  /// Errors   IoError that quotes git and says what it was to do ("git can't
  ///          ACTION") if it fails.
  std::string Do(const std::vector<std::string>& arguments,
                 const std::string& action) const;

  /// The commit that `revision` names.
  /// Errors   ConfigError, beginning with `where`, if it names none: what
  ///          begins with "-" never does, lest it be an option.
  Commit Resolve(const std::string& revision, const std::string& where) const;
  /// Empty if it names none.
  std::optional<Commit> Find(const std::string& revision) const;
  /// A sentence with a space before it, if the repository is a clone without
  /// its older commits; else "".
  std::string ShallowNote() const;
  /// The commits on the way from the first one to HEAD, by first parents;
  /// empty outside of a repository.
  std::vector<std::string> FirstParents() const;

 private:
  struct Answer {
    int exit_code = 0;
    std::string output;
    std::string errors;
  };
  std::optional<Answer> Run(const std::vector<std::string>& arguments) const;

  std::filesystem::path folder_;
  TemporaryFolder output_;
};

}  // namespace isoloss::campaign
