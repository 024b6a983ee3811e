// Defines a format of printed logs, whose lines stand among foreign lines and
// are read one by one.
#pragma once

#include <memory>
#include <string_view>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Reads one file from its first line on.
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

 private:
  ForeignRun run_;
};

/// To add a format, write a file that defines one, and add a line to
/// formats.def and a row to docs/import.md.
struct LineFormat {
  std::string_view name;   ///< "torchtitan"
  std::string_view title;  ///< "torchtitan's stdout"
  std::unique_ptr<LineReader> (*make)();
  /// The format belongs to no program: any format of a program that found a
  /// loss goes before it.
  bool last_resort = false;
};

}  // namespace isoloss::foreign
