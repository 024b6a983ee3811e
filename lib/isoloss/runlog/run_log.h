// The contract between the compute side and the judgement side: what one run of
// one arm with one seed leaves behind.
//
// In memory it is columns; on disk one HDF5 file (docs/run-log.md), written by
// writer.h and read by reader.h. Other programs' logs become the same thing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isoloss::runlog {

/// Version of the layout on disk, attribute `schema_version`.
inline constexpr int64_t kSchemaVersion = 1;

/// What is known of one optimizer step; Of<T> is one value or a column of them.
template <template <typename> typename Of>
struct StepFields {
  Of<int64_t> step{};         ///< from 1, ascending
  Of<int64_t> tokens_seen{};  ///< after this step
  Of<double> loss_nats{};     ///< mean over labels, before the update
  Of<double> grad_norm{};     ///< global L2, before clipping
  Of<double> lr{};
  Of<double> step_seconds{};
  Of<double> tokens_per_second{};
  /// Busiest expert's tokens over the mean, worst MoE layer.
  Of<double> expert_load_max_over_mean{};
  /// Experts without a token, summed over MoE layers.
  Of<int64_t> dead_experts{};
  /// GEMM calls with a quantised operand that were executed in this step.
  Of<int64_t> quantized_gemms{};
};

template <typename T>
using One = T;
template <typename T>
using Column = std::vector<T>;

using StepRow = StepFields<One>;

/// One value per optimizer step. A column is either as long as `step` or empty
/// (the program that wrote the log does not know the quantity).
struct StepColumns : StepFields<Column> {
  /// Adds one value to every column.
  void Append(const StepRow& row);
};

/// Held-out evaluation on fixed batches.
struct EvalColumns {
  std::vector<int64_t> step;      ///< 0: before the first update
  std::vector<double> loss_nats;  ///< mean over sequences of equal length
  /// [evaluations * sequences], row-major.
  std::vector<double> per_sequence_loss_nats;
  int64_t sequences = 0;
};

struct Event {
  double unix_seconds = 0;
  std::string kind;  ///< "start", "finish", "abort", "interrupt", …
  std::string text;
};

/// Who made the run, from what, how. Everything that must agree between two
/// arms but the declared change is in `config_digest`.
struct Provenance {
  std::string tool_version;  ///< "isoloss 0.1.0"
  std::string commit;  ///< of the source, "-dirty" if modified, or "unknown"
  std::string compiler;
  std::string cpu_target;  ///< kernel target that ran
  std::string experiment_name;
  std::string experiment_text;    ///< the resolved experiment, TOML
  std::string experiment_digest;  ///< of experiment_text
  /// Digest of the resolved experiment without its arms and without what only
  /// says how to execute it (workers, output, gate).
  std::string config_digest;
  std::string arm;
  std::string baseline_arm;     ///< the experiment's first arm
  std::string recipe;           ///< recipe name
  std::string resolved_recipe;  ///< one line per GEMM site
  std::string corpus_description;
  std::string corpus_digest;
  std::string initial_weights_digest;
  std::string final_weights_digest;
  int64_t seed = 0;
  int64_t steps_planned = 0;
  int64_t tokens_per_step = 0;
  int64_t parameters = 0;  ///< number of trained values
  int64_t workers = 0;     ///< threads of this run; no bit depends on it
  /// Quantised GEMM calls that the recipe asks for in each step (an expert
  /// without tokens still counts), and GEMM calls in all.
  int64_t quantized_gemms_per_step = 0;
  int64_t gemms_per_step = 0;
  double unigram_entropy_nats = 0;  ///< of the training share; NaN if unknown
  double entropy_floor_nats = 0;    ///< of a synthetic source; NaN if unknown
  bool complete = false;            ///< all planned steps were run
};

struct RunLog {
  Provenance provenance;
  StepColumns steps;
  EvalColumns eval;
  std::vector<Event> events;
};

}  // namespace isoloss::runlog
