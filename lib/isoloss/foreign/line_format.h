// What a program's printed log is: lines among others, each read by itself.
#pragma once

#include <memory>
#include <string_view>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Reads one file from its first line on.
class LineReader {
 public:
  virtual ~LineReader() = default;

  /// Whether the line is one of the format's; its values are kept then. A line
  /// may hold anything.
  virtual bool Read(std::string_view line) = 0;
  /// After the last line: what can be said of the whole. Called once.
  virtual void Finish() {}
  /// Whether a loss, of training or an evaluation, has been read so far.
  virtual bool has_loss() const;

  ForeignRun& run() { return run_; }
  const ForeignRun& run() const { return run_; }

 private:
  ForeignRun run_;
};

/// To add one, write a file that defines it and a line of formats.def;
/// docs/import.md has a row for each.
struct LineFormat {
  std::string_view name;   ///< "torchtitan"
  std::string_view title;  ///< "torchtitan's stdout"
  std::unique_ptr<LineReader> (*make)();
  /// It knows no program: any other format that found a loss goes before it.
  bool last_resort = false;
};

}  // namespace isoloss::foreign
