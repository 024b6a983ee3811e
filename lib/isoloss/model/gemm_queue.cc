#include "isoloss/model/gemm_queue.h"

namespace isoloss::model {

void GemmQueue::Add(const GemmTask& task) {
  const bool quantized = task.problem.a.quantization != nullptr ||
                         task.problem.right_quantization() != nullptr;
  CountOthers(quantized ? 1 : 0, 1);
  if (engine_) {
    tasks_.push_back(task);
  } else {
    problems_.push_back(task.problem);
  }
}

void GemmQueue::Run() {
  if (!tasks_.empty()) engine_(tasks_, team_);
  tasks_.clear();
  kernels::GemmBatch(problems_, team_);
  problems_.clear();
  for (const Announcement& announcement : announcements_) {
    announcement.sink->OnTensor(announcement.tensor);
  }
  announcements_.clear();
}

}  // namespace isoloss::model
