#include "isoloss/transport/operation.h"

#include <fmt/format.h>

namespace isoloss::transport {

const char* OpName(OpKind kind) {
  switch (kind) {
    case OpKind::kCounts:
      return "counts";
    case OpKind::kDispatch:
      return "dispatch";
    case OpKind::kCombine:
      return "combine";
    case OpKind::kDispatchGradient:
      return "dispatch gradient";
    case OpKind::kCombineGradient:
      return "combine gradient";
    case OpKind::kGradients:
      return "gradients";
    case OpKind::kWeights:
      return "weights";
    case OpKind::kScalars:
      return "scalars";
    case OpKind::kConservation:
      return "conservation";
    case OpKind::kVote:
      return "vote";
    case OpKind::kBarrier:
      return "barrier";
  }
  return "unknown operation";  // another version of this program sent it
}

std::string Describe(const Operation& operation) {
  std::string text = OpName(operation.kind);
  if (operation.layer >= 0) {
    text += fmt::format(", MoE layer {}", operation.layer);
  }
  if (operation.hop > 0) text += fmt::format(", hop {}", operation.hop);
  return text;
}

}  // namespace isoloss::transport
