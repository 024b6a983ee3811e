// Makes runs of rows that are JSON objects.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"
#include "isoloss/foreign/table_names.h"

namespace isoloss::foreign {

/// Gathers rows that are objects. It takes all numbers, and calls those of
/// inner objects "outer/inner".
class JsonRows {
 public:
  /// `step_name` is the key that counts the steps. "" means the usual name that
  /// most of the first rows have.
  JsonRows(std::string_view format, std::string_view step_name);

  void Add(nlohmann::json row);
  /// Says that the key of the steps counts no calls of log, whatever its name.
  void CountsSteps() { counts_steps_ = true; }

  /// Returns the runs. Called once, after the last row. `cut` says that the
  /// last line was cut off.
  /// Errors   FormatError if no row has a step and a number.
  std::vector<ForeignRun> Finish(bool cut);

 private:
  void Decide();
  void Keep(const nlohmann::json& row);
  /// A field belongs to one row, or to an object within it: "train/loss".
  struct Field {
    std::string name;
    const nlohmann::json* value = nullptr;
  };
  std::vector<Field> FieldsOf(const nlohmann::json& row) const;
  bool MissesLoss(const std::vector<Field>& fields);
  void AddMissing(const std::vector<Field>& fields, int64_t step);
  void AddNulls();

  std::string step_name_;
  bool decided_ = false;
  bool counts_steps_ = false;
  std::vector<nlohmann::json> first_;
  ForeignRun run_;
  LossRows loss_rows_;
  std::vector<int64_t> null_;   ///< steps of updates whose loss is null
  Counters counters_;           ///< of the first rows
  std::set<std::string> keys_;  ///< with numbers, of rows without a step
  int64_t count_ = 0;
  int64_t without_step_ = 0;
};

}  // namespace isoloss::foreign
