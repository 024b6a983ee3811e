// A wave of scores that has one block.
#pragma once

#include <cstddef>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/score_plan.h"

namespace isoloss::test_support {

/// The last `rows` queries of a document that has so many keys.
class OneBlockWave {
 public:
  OneBlockWave(size_t rows, size_t keys, Memory& memory = kHostMemory)
      : there_(memory) {
    block_.length = keys;
    block_.first = keys - rows;
    block_.rows = rows;
    block_.rows_end = rows;
    there_.ResizeUninitialized(1, 1);
    memory.CopyFromHost(&block_, sizeof block_, there_.data());
  }

  kernels::ScoreWave wave() const { return {{&block_, 1}, there_.data()}; }

 private:
  kernels::ScoreBlock block_ = {};
  Matrix<kernels::ScoreBlock> there_;
};

}  // namespace isoloss::test_support
