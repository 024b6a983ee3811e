// Reads and writes history.toml of a folder of goldens, which says why each
// golden is what it is.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isoloss::goldens {

/// A GoldenChange belongs to one golden of an update.
struct GoldenChange {
  std::string golden;   ///< "mxfp8-seed1"
  std::string before;   ///< compare::ContentDigest; "" of a new golden
  std::string after;    ///< "" of one that was given up
  std::string verdict;  ///< what the gate said of the new against the old
};

/// A HistoryEntry belongs to one `golden update`.
struct HistoryEntry {
  std::string tool;    ///< "isoloss 0.9.0"
  std::string commit;  ///< of the program that made the goldens
  std::string reason;
  std::vector<std::string> accepted{};  ///< by --accept-numerics-change
  std::vector<GoldenChange> changes{};
  /// The chain is a digest of this entry and all before it.
  std::string chain{};

  /// Returns whether a program of unknown or modified source made the entry.
  /// Nobody can compute such goldens again from any commit.
  bool IsDraft() const;
};

class History {
 public:
  /// Reads and checks a history.
  /// Errors   IoError if it can't be read; ConfigError naming the line if it is
  ///          no such TOML; FormatError if it was changed by hand.
  static History Read(const std::filesystem::path& path);

  /// Returns the text that Read reads.
  std::string Text() const;
  /// Adds an entry and computes its chain.
  void Append(HistoryEntry entry);

  const std::vector<HistoryEntry>& entries() const { return entries_; }
  /// Returns the entry that last changed the golden; null if none did.
  const HistoryEntry* LastOf(const std::string& golden) const;
  /// Returns the digest of the golden's content by its last entry; "" if there
  /// is none.
  std::string ContentOf(const std::string& golden) const;
  /// Returns the names of the goldens that were not given up, sorted.
  std::vector<std::string> Goldens() const;

 private:
  std::vector<HistoryEntry> entries_;
};

}  // namespace isoloss::goldens
