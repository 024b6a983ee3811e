// Defines how a token's experts are chosen.
#pragma once

namespace isoloss::model {

enum class RoutingMode {
  kLearned,        ///< the router's scores and biases
  kForcedBalance,  ///< slot k of token t goes to expert (t * K + k) mod E
  kReplay,         ///< ids are given from outside, step by step
};

}  // namespace isoloss::model
