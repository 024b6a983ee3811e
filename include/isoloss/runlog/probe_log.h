// The contract between probes and the gate: how the tensors of a few training
// steps compare with what the same inputs should give.
//
// In memory it is columns; on disk one HDF5 file beside the run log
// (docs/run-log.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

inline constexpr int64_t kProbeSchemaVersion = 2;

/// One tensor of one step against the oracle: a scalar computation in double
/// precision from the inputs that the step itself announced. An element is
///   equal  the oracle's value, rounded as the tensor is, has the same bits
///   flip   differs, but some value within the rounding noise of FP32
///          accumulation in any order rounds to it
///   other  no order of accumulation explains it
template <template <typename> typename Of>
struct OracleFields {
#define ISOLOSS_ORACLE(type, name, ...) Of<type> name{};
#include "isoloss/runlog/probe_log.def"
};

/// Probability of a row's error of FP32 sums beyond that of row_noise_ratio 1.
inline constexpr double kRowChance = 1e-12;

using OracleRow = OracleFields<One>;

struct OracleColumns : OracleFields<Many> {
  void Append(const OracleRow& row);
};

/// Tokens whose experts are not those that the oracle chooses from the scores
/// that the step announced, one row per case, step and MoE layer.
template <template <typename> typename Of>
struct OracleRoutingFields {
#define ISOLOSS_ROUTING(type, name, ...) Of<type> name{};
#include "isoloss/runlog/probe_log.def"
};

using OracleRoutingRow = OracleRoutingFields<One>;

struct OracleRoutingColumns : OracleRoutingFields<Many> {
  void Append(const OracleRoutingRow& row);
};

/// One tensor of one teacher-forced step against the same tensor of a BF16 arm
/// with the same weights, batch, optimizer state and routing. c: the
/// candidate's values, r: the reference's.
template <template <typename> typename Of>
struct PrecisionFields {
#define ISOLOSS_PRECISION(type, name, ...) Of<type> name{};
#include "isoloss/runlog/probe_log.def"
};

using PrecisionRow = PrecisionFields<One>;

struct PrecisionColumns : PrecisionFields<Many> {
  void Append(const PrecisionRow& row);
};

/// Share of (token, slot) pairs that the candidate's own routers would have
/// sent elsewhere than the replayed routing, one row per step and MoE layer.
struct RoutingFlipColumns {
#define ISOLOSS_FLIP_SHARE(type, name, ...) std::vector<type> name = {};
#include "isoloss/runlog/probe_log.def"
};

/// What the run of case plain logged: it binds the probe to the run that it
/// speaks for, which has the same bits in these steps.
struct PlainStepColumns {
#define ISOLOSS_PLAIN_STEP(type, name, ...) std::vector<type> name = {};
#include "isoloss/runlog/probe_log.def"
};

struct ProbeLog {
  /// Of the layout that it was read from. What a later one has is empty.
  int64_t schema_version = kProbeSchemaVersion;
  /// Of the probed arm; `complete` if all cases were probed.
  Provenance provenance;
  std::vector<std::string> cases;    ///< "plain", "hot_row", …
  std::vector<std::string> tensors;  ///< "<module>_<tensor>"
  PlainStepColumns plain_steps;
  OracleColumns oracle;
  OracleRoutingColumns routing;
  /// Empty unless probed against a BF16 reference.
  std::string reference_recipe;
  PrecisionColumns precision;
  RoutingFlipColumns routing_flips;
  /// Recorded operations of another program that were compared; 0: isoloss
  /// probed a run of its own. Such a log has case `plain` only, no graph, and
  /// in /plain_steps what was recorded of steps, in ascending order; NaN is
  /// what nobody recorded.
  int64_t operations = 0;
  ReadCharge charge = {};
};

/// Writes `log` to `path`, which appears only when it is whole.
/// Errors   IoError; ShapeError if columns disagree or a place is outside its
///          list.
void WriteProbeLog(const ProbeLog& log, const std::filesystem::path& path);

/// Errors   IoError if it can't be read; FormatError, naming the dataset, if it
///          is damaged, of a newer version, columns disagree, or expected
///          flips are not between 0 and the number of elements. NaN and
///          infinity of other columns are values for the judge, not errors.
ProbeLog ReadProbeLog(const std::filesystem::path& path);

}  // namespace isoloss::runlog
