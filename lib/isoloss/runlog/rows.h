// Pieces of a run log: what one step adds to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Appends every row of `rows` to `log`. Labels and sizes of axes are taken
/// over by a log that has none. /exchange_pairs is cumulative: a matrix in
/// `rows` replaces the log's. Provenance is left alone.
/// Errors   ShapeError if labels or sizes of axes differ, or a column is in one
///          of them only; ConfigError as CheckSize. `log` is then as it was.
void AppendRows(const RunLog& rows, RunLog& log);

/// Throws what AppendRows would, but for sizes.
void CheckAppend(const RunLog& rows, const RunLog& log);

/// That no dataset of `log` would have more than `limit` values with those of
/// `rows`: a reader would refuse the log. Errors   ConfigError naming it.
void CheckSize(const RunLog& rows, const RunLog& log,
               int64_t limit = kMaxValues);

/// Removes the rows of steps above `step`. /exchange_pairs, which can't be
/// divided into steps, becomes empty if it had any of them. Events stay: they
/// happened.
void KeepRowsUpTo(int64_t step, RunLog& log);

/// Removes from `rows` what `log` has already: labels, and of each group the
/// rows of steps up to its last one there. Events stay.
void DropRowsOf(const RunLog& log, RunLog& rows);

/// Whether there is nothing in `rows` to append.
bool HasNoRows(const RunLog& rows);

/// Every row as bytes, little-endian, and back. Both walk the schema; the
/// layout is in docs/run-log.md, section Journal.
/// Errors   FormatError if the bytes are not what EncodeRows writes; ShapeError
///          if a column is not as long as its group's rows need.
std::vector<std::byte> EncodeRows(const RunLog& rows);
RunLog DecodeRows(std::span<const std::byte> bytes);
std::vector<std::byte> EncodeProvenance(const Provenance& provenance);
Provenance DecodeProvenance(std::span<const std::byte> bytes);

/// The first value that differs between two logs in their common steps, in the
/// order of the schema, as "/group/dataset at step S: A against B"; "" if
/// there is none. Bits are compared: a NaN equals itself, 0 is not -0. Columns
/// that one log lacks, events and what Field::reproducible excludes (clocks,
/// /exchange's waits and damage) are left out.
std::string FirstDifference(const RunLog& a, const RunLog& b);

}  // namespace isoloss::runlog
