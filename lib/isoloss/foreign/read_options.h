// What a reader can't tell from a log itself.
#pragma once

#include <string>

namespace isoloss::foreign {

/// Names as the log has them; "" leaves them to the reader.
struct ReadOptions {
  std::string step;  ///< column or key that counts the steps of a table
  std::string loss;  ///< series that is the run's loss, in any format
};

}  // namespace isoloss::foreign
