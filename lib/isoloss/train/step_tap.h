// Lets several listeners hear the tensors of one training step.
#pragma once

#include <cstdint>
#include <string_view>

#include "isoloss/model/tap.h"
#include "isoloss/train/run_hooks.h"

namespace isoloss::train {

/// Passes what it hears to the observer, then to `probe`.
class StepTap : public model::TapSink {
 public:
  /// `probe` may be null.
  StepTap(int64_t step, const Observer& observer, model::TapSink* probe)
      : step_(step),
        observer_(observer),
        observed_((observer.on_tensor || observer.on_routing) &&
                  (!observer.hears || observer.hears(step))),
        probe_(probe) {}

  /// Returns this, or null if nobody listens.
  model::TapSink* IfHeard() { return probe_ || observed_ ? this : nullptr; }

  void OnTensor(const model::Tensor& tensor) override {
    if (observed_ && observer_.on_tensor) observer_.on_tensor(step_, tensor);
    if (probe_ != nullptr) probe_->OnTensor(tensor);
  }
  void OnRouting(std::string_view module, MatrixView<const int32_t> expert_ids,
                 size_t first_token) override {
    if (observed_ && observer_.on_routing) {
      observer_.on_routing(step_, module, expert_ids);
    }
    if (probe_ != nullptr) probe_->OnRouting(module, expert_ids, first_token);
  }

 private:
  int64_t step_;
  const Observer& observer_;
  const bool observed_;
  model::TapSink* probe_;
};

}  // namespace isoloss::train
