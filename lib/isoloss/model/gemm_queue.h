// Products that wait to be computed together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "isoloss/base/threads.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/model/gemm_engine.h"
#include "isoloss/model/tap.h"

namespace isoloss::model {

/// All products of a model pass through here: those of linear layers, which an
/// engine may compute and which are counted, and those inside attention.
class GemmQueue {
 public:
  explicit GemmQueue(ThreadTeam& team) : team_(team) {}

  /// Who computes the products of linear layers from the next Run on; empty:
  /// kernels::GemmBatch.
  void SetEngine(GemmEngine engine) { engine_ = std::move(engine); }

  void Add(const GemmTask& task);
  /// A product inside attention: no engine computes it.
  void AddInner(const kernels::GemmProblem& problem) {
    problems_.push_back(problem);
  }
  /// Has the next Run tell `sink` of a product that it computes. What `tensor`
  /// refers to must live until then.
  void Announce(TapSink& sink, const Tensor& tensor) {
    announcements_.push_back({&sink, tensor});
  }
  /// Computes what was added since the last Run, then announces what was asked
  /// for, in that order.
  void Run();
  /// Products that Add did not see, and how many of them were quantised.
  void CountOthers(size_t quantized, size_t all) {
    quantized_ += static_cast<int64_t>(quantized);
    executed_ += static_cast<int64_t>(all);
  }

  /// Products so far: with a quantised operand, and all of them.
  int64_t quantized() const { return quantized_; }
  int64_t executed() const { return executed_; }

 private:
  struct Announcement {
    TapSink* sink;
    Tensor tensor;
  };

  ThreadTeam& team_;
  GemmEngine engine_;
  std::vector<GemmTask> tasks_;  // for the engine
  std::vector<kernels::GemmProblem> problems_;
  std::vector<Announcement> announcements_;
  int64_t quantized_ = 0;
  int64_t executed_ = 0;
};

}  // namespace isoloss::model
