// Reads rows that are JSON objects: one on each line, as of W&B's history, or
// in a list.
#include <algorithm>
#include <map>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/json_rows.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

using nlohmann::json;

/// Throws if the object gives two numbers to one key, since nobody can tell
/// which one is meant.
void RefuseTwoNumbers(std::string_view line, int64_t line_number) {
  std::map<std::string_view, std::string_view> values;
  JsonMembers members(line);
  while (members.Next()) {
    const auto [at, is_new] = values.emplace(members.key(), members.value());
    if (is_new || at->second == members.value() ||
        !ParsePlainNumber(members.value())) {
      continue;
    }
    ThrowError(ErrorKind::kFormat,
               "line {} gives the numbers {} and {} to the key `{}`, but an "
               "object has each key once. Write each under a name of its own.",
               line_number, Printable(std::string(at->second)),
               Printable(std::string(members.value())),
               Printable(std::string(members.key())));
  }
}

/// Reads lines. What a killed program left of the last line is dropped, and
/// noted. The result is empty if the first line is no object.
std::vector<ForeignRun> ReadEachLine(std::string_view text,
                                     std::string_view step_name) {
  JsonRows rows("json_lines", step_name);
  int64_t line_number = 0;
  int64_t objects = 0;
  int64_t broken_at = 0;
  ForEachLine(text, [&](std::string_view line) {
    ++line_number;
    if (Trimmed(line).empty() || (broken_at > 0 && objects == 0)) return;
    if (broken_at > 0) {
      ThrowError(ErrorKind::kFormat,
                 "line {} is no JSON object, but each line must be one. Mend "
                 "the line, or remove it if it holds no values.",
                 broken_at);
    }
    json object = ParseJson(line);
    if (!object.is_object()) {
      broken_at = line_number;
      return;
    }
    RefuseTwoNumbers(line, line_number);
    ++objects;
    rows.Add(std::move(object));
  });
  if (objects == 0) return {};
  return rows.Finish(broken_at > 0);
}

std::vector<ForeignRun> ReadObjects(Source& log, std::string_view step_name) {
  const json& whole = log.json();
  if (whole.is_object()) return {};
  if (!whole.is_array()) {
    const std::string_view text = log.text();
    const size_t first = text.find_first_not_of(" \t\r\n");
    const bool is_json = first != std::string_view::npos && text[first] == '{';
    return is_json ? ReadEachLine(text, step_name) : std::vector<ForeignRun>();
  }
  const auto is_object = [](const json& row) { return row.is_object(); };
  if (whole.empty() || !std::ranges::all_of(whole, is_object)) return {};
  JsonRows rows("json_lines", step_name);
  for (const json& row : whole) rows.Add(row);
  return rows.Finish(false);
}

}  // namespace

extern const Format kFormat_json_lines = {.name = "json_lines",
                                          .read = &ReadObjects};

}  // namespace isoloss::foreign
