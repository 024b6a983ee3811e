// Defines a format of other programs' logs. To add one, write a file that
// defines it, and add a line to formats.def and a row to docs/import.md.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"
#include "isoloss/foreign/source.h"

namespace isoloss::foreign {

/// Reads one printed log, whose lines stand among foreign lines, from its first
/// line on.
class LineReader {
 public:
  virtual ~LineReader() = default;

  /// Returns whether the line belongs to the format, and keeps its values if
  /// so. A line may hold anything.
  virtual bool Read(std::string_view line) = 0;
  /// Completes the run after the last line. Called once.
  virtual void Finish() {}
  /// Returns whether a loss, of training or an evaluation, has been read.
  virtual bool has_loss() const;

  ForeignRun& run() { return run_; }
  const ForeignRun& run() const { return run_; }

  /// Names the field that counts the steps, as ReadOptions does. A reader that
  /// obeys sets run().step_name.
  void UseStep(std::string_view name) { step_name_ = name; }
  /// Says whether the next line stands under a heading such as "Evaluation
  /// results:".
  void SetUnderEvaluation(bool under) { under_evaluation_ = under; }

 protected:
  bool under_evaluation() const { return under_evaluation_; }
  std::string_view step_name() const { return step_name_; }

 private:
  ForeignRun run_;
  std::string_view step_name_;
  bool under_evaluation_ = false;
};

/// A format sets `read`, or `lines` if it is printed. Lines of several formats
/// may stand in one file.
struct Format {
  std::string_view name;  ///< "torchtitan"
  /// Reads a whole log. The result is empty if that has another format.
  /// `step_name` is that of ReadOptions.
  std::vector<ForeignRun> (*read)(Source& log,
                                  std::string_view step_name) = nullptr;
  /// Returns whether a folder is a log of the format, by the names in it. Null
  /// if the format has no folders; `read` is given no other ones.
  bool (*has_folder)(const std::filesystem::path& folder) = nullptr;
  std::unique_ptr<LineReader> (*lines)() = nullptr;
  /// The lines belong to no program: any format of a program that found a loss
  /// goes before it.
  bool last_resort = false;
};

/// Reads one file of a folder, which must have the format.
/// Errors   as `format.read`, with the file's name; FormatError if it has
///          another format.
ForeignRun ReadOneOf(const std::filesystem::path& file, const Format& format,
                     std::string_view step_name);

/// Returns all formats, in the order of formats.def.
std::span<const Format* const> AllFormats();

template <typename Reader>
std::unique_ptr<LineReader> MakeReader() {
  return std::make_unique<Reader>();
}

}  // namespace isoloss::foreign
