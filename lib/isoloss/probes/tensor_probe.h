// Writes statistics, digests and dumps of tensors at chosen steps to logs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/tap.h"
#include "isoloss/probes/dump.h"
#include "isoloss/probes/tensor_accumulator.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::probes {

/// Steps 1 to `first` are chosen, then every `every`-th; 0 chooses none.
struct StepChoice {
  int64_t first = 0;
  int64_t every = 0;

  bool Includes(int64_t step) const;
  /// Returns whether any step is chosen.
  bool any() const { return first > 0 || every > 0; }
};

/// The options choose what is logged. Patterns are matched against
/// Tensor::Name() as by precision::SiteMatches; an empty list takes every
/// tensor.
struct ProbeOptions {
  StepChoice statistics = {};
  std::vector<std::string> statistics_tensors = {};
  StepChoice digests = {};
  std::vector<std::string> dump_tensors = {};  ///< empty: no dump
  std::vector<int64_t> dump_steps = {};
  /// Dumps go to FOLDER/NAME.dump-000120.h5.
  std::filesystem::path dump_folder = {};
  std::string run_name = {};
  runlog::ModelGraph graph = {};  ///< of dumps: it knows all tensors
};

/// The probe is collective over the processes of a mesh. In every step that it
/// wants, all see the same tensors in the same order. A name that comes again
/// is the next share of the tensor.
class TensorProbe : public model::TapSink {
 public:
  TensorProbe(ProbeOptions options, expert_parallel::Mesh& mesh,
              Executor& executor);
  ~TensorProbe() override;

  /// Returns whether the probe needs the tensors of this step.
  bool Wants(int64_t step) const;
  /// This precedes the first tensor of a step that the probe wants.
  void BeginStep(int64_t step);
  void OnTensor(const model::Tensor& tensor) override;
  /// A choice of experts has only a digest, as "<module>_expert_ids".
  void OnRouting(std::string_view module, MatrixView<const int32_t> expert_ids,
                 size_t first_token) override;
  /// This follows the last tensor. It merges over processes and writes the
  /// dump. In process 0 only, and not at a step of dumps alone, it sets
  /// rows.tensors, one row.
  ///
  /// The options alone decide which columns there are, so those of all steps
  /// fit together. If any step has digests, every tensor has a column and a
  /// digest. Otherwise the tensors whose statistics are asked for have one.
  /// All statistics and histograms are there if any step has them. A value
  /// that a step was not asked for is 0 in a digest or histogram and NaN in a
  /// statistic.
  /// Errors   IoError if the dump can't be written.
  void EndStep(runlog::RunLog& rows);

  /// Returns the time spent in this object so far. steps() counts the steps
  /// whose tensors it got.
  double seconds() const { return seconds_; }
  int64_t steps() const { return steps_; }

 private:
  /// A slot becomes one column.
  struct Slot {
    std::string name;
    bool heard = false;   ///< in this step
    uint64_t digest = 0;  ///< of this process's rows; then of all
    bool has_digest = false;
    bool has_statistics = false;
    TensorAccumulator statistics = {};
  };

  /// Returns the slot of a tensor: the next one, or that of an earlier share.
  Slot& SlotOf(const std::string& name);
  void Merge();
  void AppendTo(runlog::TensorColumns& columns) const;

  const ProbeOptions options_;
  expert_parallel::Mesh& mesh_;
  Executor& executor_;
  int64_t step_ = 0;
  bool statistics_now_ = false;
  bool digests_now_ = false;
  std::vector<Slot> slots_;  // in the order of the first step
  std::unordered_map<std::string, size_t> places_;  // of slots, by name
  size_t next_ = 0;
  TensorDumper dumper_;
  double seconds_ = 0;
  int64_t steps_ = 0;
};

}  // namespace isoloss::probes
