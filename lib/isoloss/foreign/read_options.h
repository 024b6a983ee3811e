// Tells a reader what a log itself does not tell.
#pragma once

#include <string>

namespace isoloss::foreign {

/// The names are those of the log; "" leaves the choice to the reader.
struct ReadOptions {
  std::string step;  ///< column or key that counts the steps of a table
  std::string loss;  ///< series that is the run's loss, in any format
};

}  // namespace isoloss::foreign
