// history.toml of a folder of goldens: why each is what it is.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isoloss::campaign {

/// One golden of an update.
struct GoldenChange {
  std::string golden;   ///< "mxfp8-seed1"
  std::string before;   ///< compare::ContentDigest; "" of a new golden
  std::string after;    ///< "" of one that was given up
  std::string verdict;  ///< what the gate said of the new against the old
};

/// One `golden update`.
struct HistoryEntry {
  std::string tool;    ///< "isoloss 0.1.0"
  std::string commit;  ///< of the program that made the goldens
  std::string reason;
  std::vector<std::string> accepted{};  ///< by --accept-numerics-change
  std::vector<GoldenChange> changes{};
  /// Digest of this entry and of all before it.
  std::string chain{};

  /// Made by a program of unknown or modified source: what it computed can't be
  /// computed again from any commit.
  bool IsDraft() const;
};

class History {
 public:
  /// Errors   IoError if it can't be read; ConfigError naming the line if it is
  ///          no such TOML; FormatError if it was changed by hand.
  static History Read(const std::filesystem::path& path);

  /// What Read reads.
  std::string Text() const;
  /// Adds an entry and computes its chain.
  void Append(HistoryEntry entry);

  const std::vector<HistoryEntry>& entries() const { return entries_; }
  /// The entry that last changed the golden; null if none did.
  const HistoryEntry* LastOf(const std::string& golden) const;
  /// Its content by that entry; "" if there is none.
  std::string ContentOf(const std::string& golden) const;

 private:
  std::vector<HistoryEntry> entries_;
};

}  // namespace isoloss::campaign
