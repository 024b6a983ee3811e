// Writes one group of a run log or probe log as text for other programs: as CSV
// or as JSON lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

enum class ExportFormat {
  kCsv,    ///< RFC 4180: a head line, then lines of cells
  kJsonl,  ///< one JSON object per row and line
};

/// Tells how many rows `log` has in a group of the schema.
struct GroupRows {
  std::string name;
  size_t rows = 0;
};

/// Returns all groups in the order of the schema.
std::vector<GroupRows> GroupsOf(const RunLog& log);
std::vector<GroupRows> GroupsOf(const ProbeLog& log);

/// Passes the text of group `group` to `write`, a line with its end at a time.
/// Columns that a log lacks are left out.
///
/// Returns how many rows it wrote.
///
/// CSV    In groups whose places the schema names, /tensors and /parameters,
///        each row and name has a line, with the name in the second column,
///        "name". A column is named "dataset[unit]", or "dataset" if it has no
///        unit. Arrays are laid out flat, axes in order: "dataset.label[unit]".
///        The label is the place's name if the schema names it, else its
///        number from 0: "tokens_per_expert.0.15[token]".
/// JSONL  Keys are datasets. An array is an object keyed by label if the schema
///        names its places, else a list; further axes nest.
/// Exact  A floating-point number is the shortest decimal that reads back to
///        the same bits. It always has a point or an exponent, so that the
///        sign of zero survives. NaN and infinities are NaN, Infinity and
///        -Infinity; in JSON these are strings. The bits of a NaN are lost.
/// Errors ConfigError that lists the groups if none is called `group`.
size_t ExportGroup(const RunLog& log, std::string_view group,
                   ExportFormat format,
                   const std::function<void(std::string_view line)>& write);
size_t ExportGroup(const ProbeLog& log, std::string_view group,
                   ExportFormat format,
                   const std::function<void(std::string_view line)>& write);

}  // namespace isoloss::runlog
