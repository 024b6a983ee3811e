// Kernels of softmaxes: a row's exponentials, their sum and what is made of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "isoloss/base/matrix.h"
#include "isoloss/device/element_kernels.h"
#include "isoloss/device/kernel.h"
#include "isoloss/device/quads.h"
#include "isoloss/device/row_kernels.h"
#include "isoloss/device/row_room.h"
#include "isoloss/kernels/elements.h"
#include "isoloss/kernels/lanes.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::device {

/// A softmax reads `length` numbers of a row and writes `width` of them.
struct SoftmaxRow {
  const float* x;
  float* p;
  size_t length;
  size_t width;
};

/// Sets shared().first of each row to the largest of the `length` numbers
/// x_of(row).
template <typename Block, typename XOf, typename LengthOf>
constexpr void FindLargest(Block& block, const BlockRows& rows, const XOf& x_of,
                           const LengthOf& length_of) {
  ReduceRows(
      block, rows,
      [&x_of, &length_of](size_t row, size_t lane) {
        const float* const x = x_of(row);
        const size_t length = length_of(row);
        float largest = -std::numeric_limits<float>::infinity();
        for (size_t i = lane; i < length; i += kLanes) {
          largest = kernels::Larger(largest, x[i]);
        }
        return largest;
      },
      [](float* lanes) {
        float largest = lanes[0];
        for (size_t i = 1; i < kLanes; ++i) {
          largest = kernels::Larger(largest, lanes[i]);
        }
        return largest;
      },
      [&block](size_t, size_t local, float largest) {
        block.shared().first[local] = largest;
      });
}

/// Writes a thread's part of the exponentials of a row, which may be in place.
template <size_t kThreads>
constexpr void WriteExponentials(size_t thread, const float* x, size_t length,
                                 float largest, float scale, bool has_quads,
                                 float* e) {
  ForEachPart<kThreads>(thread, length, has_quads,
                        [x, largest, scale, e](size_t i, auto width) {
                          float values[decltype(width)::value];
                          LoadPart(x + i, values);
                          ISOLOSS_UNROLL
                          for (float& value : values) {
                            value = kernels::Exp((value - largest) * scale);
                          }
                          StorePart(values, e + i);
                        });
}

/// Writes softmax(scale * x) of each row; `Rows` says which they are.
template <typename Rows>
struct SoftmaxForwardRows : KeptRowKernel {
  Rows rows;
  float scale;

  size_t blocks() const {
    return CeilOf(rows.count(), RowsOfBlock(rows.width()));
  }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const BlockRows of_block =
        BlockRowsOf(block.index(), rows.count(), RowsOfBlock(rows.width()));
    // Exponentials are in the room, or where the results will be.
    float* const room = RoomOf(block, rows.width());
    const size_t apart = Room::Apart(rows.width());
    const auto kept = [&](size_t number, float* elsewhere) {
      return room == nullptr ? elsewhere
                             : room + (number - of_block.first) * apart;
    };
    const auto x_of = [&](size_t number) -> const float* {
      return room == nullptr ? rows.Of(number).x : kept(number, nullptr);
    };
    const auto length_of = [&](size_t number) {
      return rows.Of(number).length;
    };
    const auto for_each_row = [&](const auto& use) {
      for (size_t local = 0; local < of_block.count; ++local) {
        const size_t number = of_block.first + local;
        use(local, number, rows.Of(number));
      }
    };
    block.Each([&](size_t thread) {
      if (room == nullptr) return;
      for_each_row([&](size_t, size_t number, const SoftmaxRow& row) {
        KeepRow<kThreads>(block, thread, row.x, row.length, has_quads,
                          kept(number, nullptr));
      });
      block.CommitCopies();
      block.template AwaitCopies<0>();
    });
    FindLargest(block, of_block, x_of, length_of);
    block.Each([&](size_t thread) {
      for_each_row([&](size_t local, size_t number, const SoftmaxRow& row) {
        WriteExponentials<kThreads>(thread, x_of(number), row.length,
                                    block.shared().first[local], scale,
                                    has_quads, kept(number, row.p));
      });
    });
    FoldRows(
        block, of_block,
        [&](size_t number, size_t lane) {
          const SoftmaxRow row = rows.Of(number);
          return kernels::SumOfLane<float>(
              lane, row.length,
              [e = kept(number, row.p)](size_t i) { return e[i]; },
              [](size_t) { return 1.0f; });
        },
        [&block](size_t, size_t local, float sum) {
          block.shared().second[local] = 1.0f / sum;
        });
    block.Each([&](size_t thread) {
      for_each_row([&](size_t local, size_t number, const SoftmaxRow& row) {
        const float* const e = kept(number, row.p);
        const float inverse = block.shared().second[local];
        ForEachPart<kThreads>(thread, row.width, has_quads,
                              [&](size_t i, auto width) {
                                // A row of quads has no end before its width.
                                float values[decltype(width)::value] = {};
                                if (i < row.length) {
                                  LoadPart(e + i, values);
                                  ISOLOSS_UNROLL
                                  for (float& value : values) value *= inverse;
                                }
                                StorePart(values, row.p + i);
                              });
      });
    });
  }
};

struct PlainSoftmaxRows {
  Input x;
  Output out;

  constexpr size_t count() const { return x.rows(); }
  constexpr size_t width() const { return x.cols(); }
  constexpr SoftmaxRow Of(size_t row) const {
    return {x.Row(row), out.Row(row), x.cols(), x.cols()};
  }
};

struct CrossEntropyRows : KeptRowKernel {
  Input logits;
  const int32_t* labels;
  float grad_scale;
  Rounding rounding;
  float* loss;
  Output dlogits;  ///< may be empty

  size_t blocks() const {
    return CeilOf(logits.rows(), RowsOfBlock(logits.cols()));
  }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const size_t v = logits.cols();
    const KeptRows kept = RowsOf(block, logits);
    const bool keeps = kept.room != nullptr;
    KeepRows<kThreads>(block, has_quads, kept);
    FindLargest(
        block, kept.rows, [&kept](size_t row) { return kept.Row(row); },
        [v](size_t) { return v; });
    if (keeps) {
      block.Each([&](size_t thread) {
        for (size_t local = 0; local < kept.rows.count; ++local) {
          float* const e = kept.room + local * kept.apart;
          WriteExponentials<kThreads>(thread, e, v, block.shared().first[local],
                                      1.0f, has_quads, e);
        }
      });
    }
    // Exponentials of rows that are not kept are computed twice.
    const auto exponential = [keeps](float value, float largest) {
      return keeps ? value : kernels::Exp((value - largest) * 1.0f);
    };
    FoldRows(
        block, kept.rows,
        [&](size_t row, size_t lane) {
          const float largest = block.shared().first[row - kept.rows.first];
          return kernels::SumOfLane<float>(
              lane, v,
              [&exponential, largest, values = kept.Row(row)](size_t j) {
                return exponential(values[j], largest);
              },
              [](size_t) { return 1.0f; });
        },
        [this, &block](size_t row, size_t local, float sum) {
          const int32_t label = labels[row];
          loss[row] = label == kernels::kIgnoredLabel
                          ? 0.0f
                          : kernels::Log(sum) +
                                (block.shared().first[local] -
                                 logits(row, static_cast<size_t>(label)));
          block.shared().second[local] = grad_scale / sum;
        });
    if (dlogits.empty()) return;
    block.Each([&](size_t thread) {
      for (size_t local = 0; local < kept.rows.count; ++local) {
        const size_t row = kept.rows.first + local;
        const int32_t label = labels[row];
        const float largest = block.shared().first[local];
        const float scale = block.shared().second[local];
        ForEachPart<kThreads>(thread, v, has_quads, [&](size_t i, auto width) {
          float values[decltype(width)::value];
          LoadPart(kept.Row(row) + i, values);
          ISOLOSS_UNROLL
          for (size_t k = 0; k < width; ++k) {
            values[k] = kernels::LogitGradientOf(
                exponential(values[k], largest), scale, grad_scale,
                i + k == static_cast<size_t>(label), Rounding::kFp32);
          }
          RoundAll(rounding, values);
          if (label == kernels::kIgnoredLabel) {
            ISOLOSS_UNROLL
            for (float& value : values) value = 0.0f;
          }
          StorePart(values, dlogits.Row(row) + i);
        });
      }
    });
  }
};

}  // namespace isoloss::device
