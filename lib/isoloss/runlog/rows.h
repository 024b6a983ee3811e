// Appends to a run log, and encodes, the rows that one step adds to it.
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
/// Errors   ShapeError if labels or sizes of axes differ, a column is in one
///          of them only, or steps do not ascend; ConfigError as CheckSize.
///          `log` is then as it was.
void AppendRows(const RunLog& rows, RunLog& log);

/// Does the same with rows that were checked.
void TakeRows(const RunLog& rows, RunLog& log);

/// Throws as AppendRows, but not for sizes and the order of steps: rows of
/// steps that `log` has already fit, too.
void CheckAppend(const RunLog& rows, const RunLog& log);

/// Throws unless steps ascend over both logs, from 0 to kMaxCounted, in each
/// group.
/// Errors   ShapeError naming the group and the step.
void CheckOrder(const RunLog& rows, const RunLog& log);

/// Throws if a dataset of `log` with the values of `rows` would have more than
/// `limit` values, or all datasets more bytes than ReadLimit(): a reader would
/// refuse the log.
/// Errors   ConfigError naming it.
void CheckSize(const RunLog& rows, const RunLog& log,
               int64_t limit = kMaxValues);

/// Returns the bytes for which all values of `log` count in ReadLimit().
size_t ValueBytesOf(const RunLog& log);

/// Removes the rows of steps above `step`. /exchange_pairs, which can't be
/// divided into steps, becomes empty if it had any of them. Events stay: they
/// happened.
void KeepRowsUpTo(int64_t step, RunLog& log);

/// Removes labels and rows from `rows` that `log` has already: in each group,
/// the rows of steps up to the group's last step in `log`. Events stay.
void DropRowsOf(const RunLog& log, RunLog& rows);

/// Makes every NaN the positive one without payload: compiler and instruction
/// set decide by accident which NaN an operation returns.
void UnifyNans(RunLog& rows);

/// True if a group of `rows` begins with steps that `log` may have already.
bool HaveCommonSteps(const RunLog& rows, const RunLog& log);

/// True if there is nothing in `rows` to append.
bool HasNoRows(const RunLog& rows);

/// Encodes every row as bytes, little-endian, and decodes it. The layout is
/// defined by rows_codec.cc.
/// Errors   FormatError if the bytes are not what EncodeRows writes; ShapeError
///          if a column is not as long as its group's rows need.
std::vector<std::byte> EncodeRows(const RunLog& rows);
RunLog DecodeRows(std::span<const std::byte> bytes);
std::vector<std::byte> EncodeProvenance(const Provenance& provenance);
Provenance DecodeProvenance(std::span<const std::byte> bytes);

/// Returns the first value that differs between two logs in their common steps,
/// in the order of the schema, as "/group/dataset at step S: A against B".
/// Returns "" if there is none. Bits are compared: a NaN equals itself, 0 is
/// not -0. Columns that one log lacks, events and columns that are not
/// Field::reproducible (clocks, /exchange's waits) are left out.
std::string FirstDifference(const RunLog& a, const RunLog& b);

}  // namespace isoloss::runlog
