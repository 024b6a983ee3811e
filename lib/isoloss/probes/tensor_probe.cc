#include "isoloss/probes/tensor_probe.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/probes/tensor_digest.h"

namespace isoloss::probes {
namespace {

constexpr uint64_t kHalf = uint64_t{1} << 32;

/// Adds the time of its life to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

/// Takes the largest value of all processes, element by element.
std::vector<double> LargestOfAll(const std::vector<double>& mine,
                                 expert_parallel::Mesh& mesh) {
  const std::vector<double> all = expert_parallel::Gather(mesh, mine);
  std::vector<double> largest(all.begin(),
                              all.begin() + static_cast<int64_t>(mine.size()));
  for (size_t i = mine.size(); i < all.size(); ++i) {
    double& most = largest[i % mine.size()];
    most = std::max(most, all[i]);
  }
  return largest;
}

}  // namespace

bool StepChoice::Includes(int64_t step) const {
  return step >= 1 && (step <= first || (every > 0 && step % every == 0));
}

TensorProbe::TensorProbe(ProbeOptions options, expert_parallel::Mesh& mesh,
                         Executor& executor)
    : options_(std::move(options)),
      mesh_(mesh),
      executor_(executor),
      dumper_(options_.graph) {}

TensorProbe::~TensorProbe() = default;

bool TensorProbe::Wants(int64_t step) const {
  const auto& dumps = options_.dump_steps;
  return options_.statistics.Includes(step) ||
         options_.digests.Includes(step) ||
         (!options_.dump_tensors.empty() &&
          std::find(dumps.begin(), dumps.end(), step) != dumps.end());
}

void TensorProbe::BeginStep(int64_t step) {
  const Stopwatch stopwatch(seconds_);
  const auto& dumps = options_.dump_steps;
  step_ = step;
  ++steps_;
  statistics_now_ = options_.statistics.Includes(step);
  digests_now_ = options_.digests.Includes(step);
  next_ = 0;
  dumper_.Begin(step, std::find(dumps.begin(), dumps.end(), step) != dumps.end()
                          ? options_.dump_tensors
                          : std::vector<std::string>());
  for (Slot& slot : slots_) {
    slot.digest = 0;
    slot.heard = slot.has_digest = slot.has_statistics = false;
    slot.statistics = {};
  }
}

void TensorProbe::OnTensor(const model::Tensor& tensor) {
  const Stopwatch stopwatch(seconds_);
  const std::string name = tensor.Name();
  dumper_.Add(tensor, mesh_);
  const bool of_statistics =
      options_.statistics.any() &&
      (options_.statistics_tensors.empty() ||
       precision::FirstMatch(options_.statistics_tensors, name) != nullptr);
  if (!of_statistics && !options_.digests.any()) return;
  if (!statistics_now_ && !digests_now_) return;
  Slot& slot = SlotOf(name);
  if (digests_now_) {
    slot.digest += DigestRows(tensor.values, tensor.rows, executor_);
    slot.has_digest = true;
  }
  if (statistics_now_ && of_statistics) {
    slot.statistics.Add(tensor, executor_);
    slot.has_statistics = true;
  }
}

void TensorProbe::OnRouting(std::string_view module,
                            MatrixView<const int32_t> expert_ids,
                            size_t first_token) {
  const Stopwatch stopwatch(seconds_);
  dumper_.AddRouting(module, expert_ids, first_token, mesh_);
  if (!options_.digests.any() || (!statistics_now_ && !digests_now_)) return;
  Slot& slot = SlotOf(std::string(module).append("_expert_ids"));
  if (!digests_now_) return;
  slot.digest += DigestRows(expert_ids, {.first_row = first_token}, executor_);
  slot.has_digest = true;
}

TensorProbe::Slot& TensorProbe::SlotOf(const std::string& name) {
  const size_t place = places_.try_emplace(name, slots_.size()).first->second;
  if (place == slots_.size()) slots_.push_back({.name = name});
  Slot& slot = slots_[place];
  if (!slot.heard) ISOLOSS_ASSERT(place == next_++);
  slot.heard = true;
  return slot;
}

void TensorProbe::EndStep(runlog::RunLog& rows) {
  const Stopwatch stopwatch(seconds_);
  if (statistics_now_ || digests_now_) {
    ISOLOSS_ASSERT(next_ == slots_.size());
    Merge();
    if (mesh_.process() == 0) AppendTo(rows.tensors);
  }
  if (mesh_.process() == 0) {
    dumper_.Write(options_.dump_folder, options_.run_name);
  }
}

/// Digests are exchanged as halves, whose sums are far below 2^63.
void TensorProbe::Merge() {
  std::vector<int64_t> sums;
  std::vector<double> maxima;
  for (const Slot& slot : slots_) {
    if (slot.has_digest) {
      sums.push_back(static_cast<int64_t>(slot.digest % kHalf));
      sums.push_back(static_cast<int64_t>(slot.digest / kHalf));
    }
    if (slot.has_statistics) slot.statistics.Pack(sums, maxima);
  }
  sums = expert_parallel::SumToFirst(mesh_, std::move(sums));
  if (!maxima.empty()) maxima = LargestOfAll(maxima, mesh_);
  if (mesh_.process() != 0) return;

  std::span<const int64_t> next_sums(sums);
  std::span<const double> next_maxima(maxima);
  for (Slot& slot : slots_) {
    if (slot.has_digest) {
      slot.digest = FinishDigest(static_cast<uint64_t>(next_sums[0]) +
                                 static_cast<uint64_t>(next_sums[1]) * kHalf);
      next_sums = next_sums.subspan(2);
    }
    if (slot.has_statistics) slot.statistics.Unpack(next_sums, next_maxima);
  }
  ISOLOSS_ASSERT(next_sums.empty() && next_maxima.empty());
}

void TensorProbe::AppendTo(runlog::TensorColumns& columns) const {
  const bool statistics = options_.statistics.any();
  columns = {};
  columns.step.push_back(step_);
  columns.count = static_cast<int64_t>(slots_.size());
  columns.scale_bytes = statistics ? int64_t{runlog::kScaleBytes} : 0;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  TensorStatistics none;
  none.values.fill(kNan);
  const auto append = [](const auto& histogram, std::vector<int32_t>& column) {
    column.insert(column.end(), histogram.begin(), histogram.end());
  };
  for (const Slot& slot : slots_) {
    columns.names.push_back(slot.name);
    if (options_.digests.any()) {
      columns.digest.push_back(
          slot.has_digest ? static_cast<int64_t>(slot.digest) : 0);
    }
    if (!statistics) continue;
    const TensorStatistics finished =
        slot.has_statistics ? slot.statistics.Finish() : none;
    for (size_t i = 0; i < finished.values.size(); ++i) {
      columns.statistics[i].push_back(finished.values[i]);
    }
    append(finished.e8m0_histogram, columns.e8m0_histogram);
    append(finished.e8m0_histogram_columnwise,
           columns.e8m0_histogram_columnwise);
  }
}

}  // namespace isoloss::probes
