// Collects products that wait to be computed together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/model/gemm_engine.h"
#include "isoloss/model/tap.h"

namespace isoloss::model {

/// All products of a model pass through here. Products of linear layers are
/// counted, and an engine may compute them; neither is true of products inside
/// attention.
class GemmQueue {
 public:
  explicit GemmQueue(Executor& executor) : executor_(executor) {}

  /// Sets the engine that computes the products of linear layers from the next
  /// Run on; an empty engine stands for kernels::GemmBatch.
  void SetEngine(GemmEngine engine) { engine_ = std::move(engine); }

  void Add(const GemmTask& task);
  /// Adds a product inside attention, which no engine computes.
  void AddInner(const kernels::GemmProblem& problem) {
    problems_.push_back(problem);
  }
  /// Makes the next Run tell `sink` of a product that it computes. The memory
  /// that `tensor` refers to must live until then.
  void Announce(TapSink& sink, const Tensor& tensor) {
    announcements_.push_back({&sink, tensor});
  }
  /// Computes the products that were added since the last Run, then makes the
  /// announcements in the order in which they were requested.
  void Run();
  /// Counts products that Add did not see; `quantized` of them have a quantised
  /// operand.
  void CountOthers(size_t quantized, size_t all) {
    quantized_ += static_cast<int64_t>(quantized);
    executed_ += static_cast<int64_t>(all);
  }

  /// Return the number of products so far: with a quantised operand, and in
  /// total.
  int64_t quantized() const { return quantized_; }
  int64_t executed() const { return executed_; }

 private:
  struct Announcement {
    TapSink* sink;
    Tensor tensor;
  };

  Executor& executor_;
  GemmEngine engine_;
  std::vector<GemmTask> tasks_;  // for the engine
  std::vector<kernels::GemmProblem> problems_;
  std::vector<Announcement> announcements_;
  int64_t quantized_ = 0;
  int64_t executed_ = 0;
};

}  // namespace isoloss::model
