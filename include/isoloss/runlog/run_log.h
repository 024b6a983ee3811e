// One run of one arm with one seed leaves a RunLog, the contract between the
// compute side and the judgement side.
//
// In memory it is columns; on disk it is one HDF5 file (docs/run-log.md),
// written by writer.h and read by reader.h. Logs of other programs become the
// same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/hdf5/read_limit.h"
#include "isoloss/runlog/comparing.h"
#include "isoloss/runlog/domain.h"
#include "isoloss/runlog/model_graph.h"

namespace isoloss::runlog {

/// The layout on disk has this version, in the attribute `schema_version`.
/// Older versions are read, too: columns that they lack keep their default.
inline constexpr int64_t kSchemaVersion = 7;

/// From this version on, experiment_text has all that the run records, and its
/// schedule.
inline constexpr int64_t kFullTextVersion = 5;

/// A reader takes no more values of one column or array, and no log gets more.
/// That is far more than any run needs, and keeps a forged extent from asking
/// for all memory.
inline constexpr int64_t kMaxValues = int64_t{1} << 28;

/// Describes one optimizer step; Of<T> is one value or a column.
template <template <typename> typename Of>
struct StepFields {
#define ISOLOSS_STEP(type, name, ...) Of<type> name{};
#include "isoloss/runlog/run_log.def"
};

template <typename T>
using One = T;
template <typename T>
using Many = std::vector<T>;

using StepRow = StepFields<One>;

/// Has one value per optimizer step. A column is either as long as `step`, or
/// empty if the program that wrote the log does not know the quantity.
struct StepColumns : StepFields<Many> {
  /// Adds one value to every column.
  void Append(const StepRow& row);
};

/// Holds the results of held-out evaluation on fixed batches.
struct EvalColumns {
  std::vector<int64_t> step;      ///< 0: before the first update
  std::vector<double> loss_nats;  ///< mean over sequences of equal length
  /// The shape is [evaluations * sequences], row-major.
  std::vector<double> per_sequence_loss_nats;
  int64_t sequences = 0;
};

/// Describes each of P parameters in each of S optimizer steps, as [S, P],
/// row-major.
struct ParameterColumns {
  std::vector<int64_t> step;
  int64_t count = 0;               ///< P
  std::vector<std::string> names;  ///< [P], torchtitan's order
  std::vector<double> grad_norm;   ///< L2, before clipping
  /// Holds the L2 norm of the step's change over that of the weights before it.
  std::vector<double> update_ratio;
};

/// Describes one statistic of /tensors: its dataset, unit, meaning and values.
struct TensorStatistic {
  const char* name;
  const char* unit;
  const char* description;
  Domain domain;
  Turn turn = Turn::kMeasured;
  Scale scale = Scale::kOwn;
};

/// Each constant, such as kStat_min, is a place in kTensorStatistics.
enum TensorStatisticIndex : size_t {
#define ISOLOSS_STATISTIC(id, ...) kStat_##id,
#include "isoloss/runlog/tensor_statistics.def"
#undef ISOLOSS_STATISTIC
  kTensorStatisticCount
};

/// The statistics follow the order of tensor_statistics.def.
inline constexpr TensorStatistic kTensorStatistics[] = {
#define ISOLOSS_STATISTIC(id, ...) {__VA_ARGS__},
#include "isoloss/runlog/tensor_statistics.def"
#undef ISOLOSS_STATISTIC
};

/// One histogram of E8M0 scale bytes has this many values.
inline constexpr size_t kScaleBytes = 256;

/// Returns how many values one step with statistics of `tensors` adds to the
/// largest dataset of /tensors, e8m0_histogram. All steps together may add
/// kMaxValues.
constexpr int64_t TensorValuesPerStep(int64_t tensors) {
  return tensors * static_cast<int64_t>(kScaleBytes);
}

/// Describes N tensors at chosen steps, in the order of computation. A name is
/// "<module>_<tensor>" as in TransformerEngine's logs; the tensor is a weight,
/// activation, output, gradient, dgrad, wgrad, parameter or update. All columns
/// are [S_t, N], row-major; a column that was not asked for is empty.
struct TensorColumns {
  std::vector<int64_t> step;
  int64_t count = 0;               ///< N
  std::vector<std::string> names;  ///< [N]
  /// The digest has 64 bits of the content; 0 for a tensor without one at this
  /// step.
  std::vector<int64_t> digest;
  /// A statistic is NaN if it is not defined for the tensor.
  std::array<std::vector<double>, kTensorStatisticCount> statistics;
  int64_t scale_bytes = 0;  ///< kScaleBytes if there are histograms
  /// Says how many blocks have each E8M0 byte, [S_t, N, 256].
  std::vector<int32_t> e8m0_histogram;
  std::vector<int32_t> e8m0_histogram_columnwise;
};

/// Tells which tokens were sent to which experts, one row per optimizer step. S
/// steps, L MoE layers, E experts, T tokens of a step, K slots of a token; all
/// row-major. A column is whole or empty (not recorded).
struct MoeColumns {
  std::vector<int64_t> step = {};
  int64_t layers = 0;
  int64_t experts = 0;
  int64_t tokens = 0;  ///< on disk as an extent of expert_ids only
  int64_t top_k = 0;   ///< likewise
#define ISOLOSS_MOE(type, name, ...) std::vector<type> name = {};
#include "isoloss/runlog/run_log.def"
};

/// Tells how much the exchange moved, one row per optimizer step, for R virtual
/// ranks. Bytes are those of payloads and include messages of a rank to itself.
struct ExchangeColumns {
  std::vector<int64_t> step = {};
  int64_t ranks = 0;
  int64_t layers = 0;
#define ISOLOSS_EXCHANGE(type, name, ...) std::vector<type> name = {};
#include "isoloss/runlog/run_log.def"
  std::vector<int64_t> bytes_by_pair =
      {};  ///< [R, R] source, target; all steps
};

struct Event {
  double unix_seconds = 0;
  std::string kind;  ///< "start", "finish", "abort", "interrupt", …
  std::string text;
};

/// Says for which steps a loss of another program's log stands.
enum class LossValues : uint8_t {
  kOfStep,      ///< that step's own
  kOfInterval,  ///< mean over the steps since the value before
  kOfBucket,    ///< mean of points that a chart put together
  kSmoothed,    ///< of earlier steps as well
};

/// Tells how a run that another program trained came to be a run log, and how
/// exactly the log has the run's numbers.
struct Origin {
#define ISOLOSS_ORIGIN(type, member, value, ...) type member = value;
#include "isoloss/runlog/provenance.def"

  /// Returns the worst kind if a file has a number without a kind.
  LossValues values() const {
    constexpr auto kMost = static_cast<int64_t>(LossValues::kSmoothed);
    return loss_values >= 0 && loss_values <= kMost
               ? static_cast<LossValues>(loss_values)
               : LossValues::kSmoothed;
  }
};

/// Holds what another program's log tells besides the columns of a run log;
/// nothing of it is written to a file.
struct Told {
  /// Counts something in the run's batches, at the steps where the log tells
  /// it.
  struct Number {
    std::string name;           ///< "global batch size"
    std::vector<int64_t> step;  ///< ascending; 0 alone: of the whole run
    std::vector<double> value;
    bool sure = true;  ///< by its name it is that and nothing else
  };
  std::vector<Number> numbers;
  /// The log has a sign that no weight moved, at these steps.
  struct Idle {
    std::string says;           ///< "the optimizer skipped its update"
    std::vector<int64_t> step;  ///< ascending
    std::vector<double> value;  ///< 0: none moved
    double half_unit = 0;       ///< of the values, as Origin::loss_half_unit
    bool may_begin = false;     ///< as while a loss scale is found
  };
  std::vector<Idle> idle;
  /// Gradient norms have this half unit, as Origin::loss_half_unit.
  double grad_norm_half_unit = 0;
  /// By its statistics the curve is smoothed, though nothing declares it.
  bool looks_smoothed = false;
  /// All losses are multiples of this distance, because they come from a coarse
  /// format though they are written with more digits; 0: none.
  double loss_step = 0;
};

/// Names a fact that a log may tell of its run. A log of isoloss tells all of
/// them; a log of another program tells only some.
enum class Fact {
  kExperiment,  ///< declares the arms, seeds, schedule and what must be equal
  kRecording,   ///< which attributes, columns and rows are due
  kEveryStep,   ///< has a row for each step, from 1 on
  kBits,        ///< holds each value with all of its bits
  kBatches,     ///< each step draws its sequences anew; digests identify them
  kGraph,       ///< each operation of a probed step can be computed again
  kRecipe,      ///< which GEMM has which formats
};

/// Records who made the run, how and from which inputs. Two arms must agree in
/// all that enters `config_digest`: everything but the declared change.
struct Provenance {
#define ISOLOSS_ATTRIBUTE(type, name, value, ...) type name = value;
#include "isoloss/runlog/provenance.def"
  ModelGraph graph;  ///< of the model, with the recipe; empty before version 5
  Origin origin;

  /// True if the log tells `fact`; then it is a fault if the fact is absent.
  bool Knows(Fact fact) const {
    const bool is_ours = origin.format.empty();
    return is_ours || (fact == Fact::kRecipe && !graph.empty());
  }
};

struct RunLog {
  /// The log was read from this version of the layout; columns of later
  /// versions are empty.
  int64_t schema_version = kSchemaVersion;
  Provenance provenance;
  StepColumns steps;
  EvalColumns eval;
  ParameterColumns parameters;
  TensorColumns tensors;
  MoeColumns moe;
  ExchangeColumns exchange;
  std::vector<Event> events;
  Told told = {};
  hdf5::ReadCharge charge = {};  ///< of a log that was read
};

}  // namespace isoloss::runlog
