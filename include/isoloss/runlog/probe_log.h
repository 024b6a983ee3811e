// Probes tell the gate with this contract how the tensors of a few training
// steps compare with those that the same inputs should give.
//
// In memory it is columns; on disk it is one HDF5 file beside the run log
// (docs/run-log.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

inline constexpr int64_t kProbeSchemaVersion = 4;

/// Compares one tensor of one step with the oracle. The oracle is a scalar
/// computation in double precision from the inputs that the step itself
/// announced. An element is
///   equal  the oracle's value, rounded as the tensor is, has the same bits.
///   flip   differs, but some value within the rounding noise of FP32
///          accumulation in any order rounds to it.
///   other  no order of accumulation explains it.
template <template <typename> typename Of>
struct OracleFields {
#define ISOLOSS_ORACLE(type, name, ...) Of<type> name{};
#include "isoloss/runlog/probe_log.def"
};

/// The FP32 sums of a row have an error beyond row_noise_ratio 1 with this
/// probability, and so do those of a tensor beyond tensor_noise_ratio 1.
inline constexpr double kRowChance = 1e-12;

using OracleRow = OracleFields<One>;

/// Sampled checks tell which share of wrong elements they miss this often.
inline constexpr double kMissChance = 0.001;
/// Names of figures of a run log begin like this: "log./moe/routing_digest".
inline constexpr const char* kLogPrefix = "log.";

struct OracleColumns : OracleFields<Many> {
  void Append(const OracleRow& row);

  /// Both functions know that logs of earlier versions saw all elements.
  int64_t UnseenElements(size_t i) const;
  /// Returns the share of wrong elements that row i would have missed with a
  /// probability of kMissChance, wherever they are; 0 if it saw all.
  double MissedShare(size_t i) const;
};

/// Counts tokens whose experts are not those that the oracle chooses from the
/// scores that the step announced, one row per case, step and MoE layer.
template <template <typename> typename Of>
struct OracleRoutingFields {
#define ISOLOSS_ROUTING(type, name, ...) Of<type> name{};
#include "isoloss/runlog/probe_log.def"
};

using OracleRoutingRow = OracleRoutingFields<One>;

struct OracleRoutingColumns : OracleRoutingFields<Many> {
  void Append(const OracleRoutingRow& row);
};

/// Compares one tensor of one teacher-forced step with the same tensor of a
/// BF16 arm that has the same weights, batch, optimizer state and routing. In
/// the names of columns, c stands for the candidate's values and r for the
/// reference's.
template <template <typename> typename Of>
struct PrecisionFields {
#define ISOLOSS_PRECISION(type, name, ...) Of<type> name{};
#include "isoloss/runlog/probe_log.def"
};

using PrecisionRow = PrecisionFields<One>;

struct PrecisionColumns : PrecisionFields<Many> {
  void Append(const PrecisionRow& row);
};

/// Gives the share of (token, slot) pairs that the candidate's own routers
/// would have sent elsewhere than the replayed routing, one row per step and
/// MoE layer.
struct RoutingFlipColumns {
#define ISOLOSS_FLIP_SHARE(type, name, ...) std::vector<type> name = {};
#include "isoloss/runlog/probe_log.def"
};

/// Holds what the run of case "plain" logged. These values bind the probe to
/// the run for which it speaks: that run has the same bits in these steps.
struct PlainStepColumns {
#define ISOLOSS_PLAIN_STEP(type, name, ...) std::vector<type> name = {};
#include "isoloss/runlog/probe_log.def"
};

struct ProbeLog {
  /// The log was read from this version of the layout; columns of later
  /// versions are empty.
  int64_t schema_version = kProbeSchemaVersion;
  /// Describes the probed arm; `complete` is true if all cases were probed.
  Provenance provenance;
  std::vector<std::string> cases;    ///< "plain", "hot_row", …
  std::vector<std::string> tensors;  ///< "<module>_<tensor>"
  PlainStepColumns plain_steps;
  OracleColumns oracle;
  OracleRoutingColumns routing;
  /// These members are empty unless the arm was probed against a BF16
  /// reference.
  std::string reference_recipe;
  PrecisionColumns precision;
  RoutingFlipColumns routing_flips;
  /// Counts the recorded operations of another program that were compared; 0:
  /// isoloss probed a run of its own. A log with such operations has case
  /// `plain` only and no graph. Its /plain_steps has what was recorded of
  /// steps, in ascending order, and NaN for all else.
  int64_t operations = 0;
  hdf5::ReadCharge charge = {};
};

/// Returns the largest MissedShare of the log's tensors. Figures of a run log
/// are no elements of a tensor, so they do not count.
double WorstMissedShare(const ProbeLog& log);

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
