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
  Of<int64_t> probe_case{};  ///< place in ProbeLog::cases
  Of<int64_t> step{};
  Of<int64_t> tensor{};  ///< place in ProbeLog::tensors
  Of<int64_t> elements{};
  Of<int64_t> equal{};
  Of<int64_t> flips{};
  Of<int64_t> other{};
  /// Flips that FP32 accumulation in an unlucky order leads one to expect.
  Of<double> expected_flips{};
  /// Root mean square of the error over that which FP32 accumulation in an
  /// unlucky order leads one to expect (oracle/exact_dot.h), where the tensor
  /// is not rounded to fewer bits; NaN elsewhere.
  Of<double> noise_ratio{};
  /// Largest error over its bound; <= 1 unless there are others. Infinite if a
  /// value is not finite and the oracle's is, or the other way round.
  Of<double> worst_ratio{};
  /// Place, value and the oracle's value of the element with that ratio; -1 if
  /// all are equal.
  Of<int64_t> worst_row{};
  Of<int64_t> worst_column{};
  Of<double> worst_value{};
  Of<double> worst_expected{};

  // Of layout 2.

  /// Flips to a value nearer to zero than the oracle's.
  Of<int64_t> flips_toward_zero{};
  /// Flips, and those expected, beyond one of each cluster: elements whose
  /// exact values have the same significand flip together.
  Of<int64_t> repeated_flips{};
  Of<double> expected_repeated_flips{};
  /// Largest noise_ratio of a row, over what chance (kRowChance) may add to
  /// that of so few elements; NaN where noise_ratio is not defined.
  Of<double> row_noise_ratio{};
  Of<int64_t> noisiest_row{};  ///< that row; -1 if there is none
  /// Elements of an FP32 tensor that have a noise, in rows that differ from one
  /// another, and the mean over them of the error, each over its own standard
  /// deviation and negative toward zero; NaN if there are none.
  Of<int64_t> noisy_elements{};
  Of<double> signed_error{};
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
  Of<int64_t> probe_case{};
  Of<int64_t> step{};
  Of<int64_t> layer{};  ///< of the MoE layers
  Of<int64_t> tokens{};
  Of<int64_t> flips{};  ///< explained by scores within rounding noise
  Of<int64_t> other{};  ///< not explained
  /// Of who chose whom, as MoeColumns::routing_digest. Of layout 2.
  Of<int64_t> digest{};
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
  Of<int64_t> step{};
  Of<int64_t> tensor{};
  Of<double> relative_error{};  ///< ||c - r|| / ||r||
  Of<double> gain{};            ///< <c, r> / <r, r> - 1
  /// Largest relative error of a group of rows (an expert, or 32 tokens).
  Of<double> worst_group_error{};
  Of<double> saturated{};   ///< share of elements, %; NaN: not quantised
  Of<double> underflows{};  ///< share of elements, %; NaN: not quantised
};

using PrecisionRow = PrecisionFields<One>;

struct PrecisionColumns : PrecisionFields<Many> {
  void Append(const PrecisionRow& row);
};

/// Share of (token, slot) pairs that the candidate's own routers would have
/// sent elsewhere than the replayed routing, one row per step and MoE layer.
struct RoutingFlipColumns {
  std::vector<int64_t> step;
  std::vector<int64_t> layer;
  std::vector<double> flip_share;
};

/// What the run of case plain logged: it binds the probe to the run that it
/// speaks for, which has the same bits in these steps.
struct PlainStepColumns {
  std::vector<int64_t> step;
  std::vector<double> loss_nats;
  std::vector<double> grad_norm;
  /// As in ExchangeColumns, but counted by the oracle from the routing, the
  /// mesh and the payloads; 0 without experts. Of layout 2.
  std::vector<int64_t> bytes_to_self = {};
  std::vector<int64_t> bytes_within_nodes = {};
  std::vector<int64_t> bytes_between_nodes = {};
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
