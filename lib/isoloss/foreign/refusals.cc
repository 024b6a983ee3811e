#include "isoloss/foreign/refusals.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/foreign/csv.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/table_names.h"

namespace isoloss::foreign {
namespace {

/// A byte 0 within this length tells that a file is no text.
constexpr size_t kFrontBytes = 4096;

/// The first bytes tell a file that was given in place of a log.
struct Front {
  std::string_view bytes;
  std::string_view what;
  std::string_view remedy;
};

constexpr Front kFronts[] = {
    {"version https://git-lfs",
     "a pointer of git-lfs, three lines of text in place of the log",
     "Fetch the file: git lfs pull"},
    {"\x1F\x8B", "compressed", "Unpack it: gunzip"},
    {"\x28\xB5\x2F\xFD", "compressed", "Unpack it: unzstd"},
    {"PK\x03\x04", "an archive", "Unpack it: unzip"},
    {"SQLite format 3", "a database, as MLflow 3 keeps its runs in",
     "Write the run's metrics as CSV, or log to a folder (file:mlruns)"},
    {"\x89HDF", "an HDF5 file", "A run log of isoloss needs no import"},
};

/// Returns whether the content begins as JSON. A single bracket is not enough,
/// since torchtitan's lines may begin with [rank0].
bool BeginsAsJson(std::string_view content) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return false;
  if (content[first] == '{') return true;
  const size_t second = content.find_first_not_of(" \t\r\n", first + 1);
  return content[first] == '[' && second != std::string_view::npos &&
         std::string_view("{[").find(content[second]) != std::string_view::npos;
}

/// Refuses a table that no reader knows. Returns if there are no columns.
void RefuseTable(const std::vector<std::string>& columns,
                 std::string_view step_name) {
  if (columns.empty()) return;
  if (columns.size() == 1) {
    ThrowError(ErrorKind::kFormat,
               "the table has the one column {}, but a log has a step beside "
               "each value. Write the table with its steps.",
               NamesText(columns));
  }
  const std::string_view step =
      step_name.empty() ? StepNameAmong(columns) : step_name;
  if (!step.empty() && std::ranges::count(columns, step) != 0) {
    ThrowError(ErrorKind::kFormat,
               "the table has the columns {}, but no number beside `{}`. Write "
               "numbers with a point.",
               NamesText(columns), step);
  }
  ThrowError(ErrorKind::kFormat,
             "the table has the columns {}, but {} that counts the steps. "
             "Name the one that does (--step NAME).",
             NamesText(columns),
             step_name.empty() ? std::string("none is known as the one")
                               : fmt::format("not `{}`", step_name));
}

}  // namespace

void RefuseBinary(std::string_view content) {
  for (const Front& front : kFronts) {
    if (!content.starts_with(front.bytes)) continue;
    ThrowError(ErrorKind::kFormat,
               "the file is {}, but a log is text or an event file. {}.",
               front.what, front.remedy);
  }
  const size_t zero = content.substr(0, kFrontBytes).find('\0');
  if (zero == std::string_view::npos) return;
  ThrowError(ErrorKind::kFormat,
             "byte {} is 0, so the file is no text, but a log is text or an "
             "event file of TensorBoard. Give the log of a training run.",
             zero + 1);
}

void RefuseUnknown(Source& log, std::string_view step_name) {
  const std::string_view content = log.text();
  if (content.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    ThrowError(ErrorKind::kFormat,
               "{} bytes hold no value: the file is empty, but a log has a "
               "loss at each step. Give the log of a run that has begun.",
               content.size());
  }
  if (BeginsAsJson(content)) {
    const std::string fault = JsonFault(content);
    if (!fault.empty()) {
      ThrowError(ErrorKind::kFormat, "the file begins as JSON, but {}.", fault);
    }
  }
  if (log.json().is_object()) {
    ThrowError(
        ErrorKind::kFormat,
        "the file is a JSON object with {} keys, but none of the layouts "
        "that hold a loss: trainer_state.json (log_history), golden "
        "values of Megatron (metrics with values, or steps with lm loss), "
        "MLPerf's reference convergence points. Give the log of a "
        "training run.",
        log.json().size());
  }
  RefuseTable(CsvColumns(content), step_name);
  if (IsNamelessCsv(content)) {
    ThrowError(ErrorKind::kFormat,
               "the first line is numbers, but that of a table names its "
               "columns. Write a line such as step,loss before it.");
  }
  ThrowError(ErrorKind::kFormat,
             "{} bytes hold no value of a training log that is known: no loss "
             "stands beside a step, as if the run ended before it. Give "
             "what torchtitan, Megatron-LM, NeMo, MaxText, DeepSpeed, OLMo, "
             "verl, MLPerf, nanoGPT, Lightning, Hugging Face's Trainer or W&B "
             "wrote, or a table with a step and a loss.",
             content.size());
}

}  // namespace isoloss::foreign
