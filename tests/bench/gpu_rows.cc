#include <fmt/format.h>

#include <functional>
#include <vector>

#include "gpu_figures.h"
#include "isoloss/base/rng.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::bench {
namespace {

using kernels::Rounding;

constexpr size_t kTokens = 65536;
constexpr size_t kWidth = 1024;
/// The CPU computes so many rows for the comparison.
constexpr size_t kCompared = 64;
constexpr Rounding kRounding = Rounding::kBf16;

/// Operations read and write it, in the memory of their executor. The first
/// rows are the same whatever the number of rows.
struct Buffers {
  Matrix<float> x, y, z, out, out2, weight, dweight, per_token;
  std::vector<int32_t> labels;
  Matrix<float> losses;  ///< in the host's memory
  Executor& executor;

  Buffers(size_t tokens, Executor& runs_it)
      : x(Filled(tokens, kWidth, 0, runs_it)),
        y(Filled(tokens, kWidth, 1, runs_it)),
        z(Filled(tokens, kWidth, 2, runs_it)),
        out(Filled(tokens, kWidth, 3, runs_it)),
        out2(Filled(tokens, kWidth, 4, runs_it)),
        weight(Filled(1, kWidth, 5, runs_it)),
        dweight(RoomFor(runs_it, 1, kWidth)),
        per_token(Filled(1, tokens, 6, runs_it)),
        labels(tokens, 5),
        losses(1, tokens),
        executor(runs_it) {}

  static Matrix<float> Filled(size_t rows, size_t cols, uint64_t stream,
                              Executor& executor) {
    const CounterRng rng(4, stream);
    Matrix<float> values(rows, cols);
    executor.ParallelFor(rows, [&](size_t row) {
      for (size_t col = 0; col < cols; ++col) {
        values(row, col) =
            static_cast<float>(2.5 * rng.Uniform(row * cols + col) + 0.25);
      }
    });
    return CopyFor(executor, values);
  }
};

template <typename T>
std::span<T> SpanOf(Matrix<T>& values) {
  return {values.data(), values.size()};
}

struct Operation {
  const char* name;
  double matrices;  ///< that are read or written once
  double bar;
  std::vector<Matrix<float> Buffers::*> written;
  std::function<void(Buffers&)> run;
};

std::vector<Operation> Operations() {
  constexpr double kForward = 0.8;
  constexpr double kBackward = 0.6;
  return {
      {"Cast",
       2,
       kForward,
       {&Buffers::out},
       [](Buffers& b) {
         kernels::Cast(b.x.view(), kRounding, b.out.view(), b.executor);
       }},
      {"Add",
       3,
       kForward,
       {&Buffers::out},
       [](Buffers& b) {
         kernels::Add(b.x.view(), b.y.view(), kRounding, b.out.view(),
                      b.executor);
       }},
      {"RmsNormForward",
       2,
       kForward,
       {&Buffers::out, &Buffers::per_token},
       [](Buffers& b) {
         kernels::RmsNormForward(b.x.view(), SpanOf(b.weight), 1e-5f, kRounding,
                                 b.out.view(), SpanOf(b.per_token), b.executor);
       }},
      {"SwigluForward",
       3,
       kForward,
       {&Buffers::out},
       [](Buffers& b) {
         kernels::SwigluForward(b.x.view(), b.y.view(), kRounding, b.out.view(),
                                b.executor);
       }},
      {"AdamWUpdate",
       7,
       kForward,
       {&Buffers::out, &Buffers::y, &Buffers::out2},
       [](Buffers& b) {
         const kernels::AdamWScalars scalars = {
             0.9999f, 0.9f, 0.1f, 0.95f, 0.05f, 1e-3f, 0.31f, 1e-8f, 1.0f};
         kernels::AdamWUpdate(SpanOf(b.out), SpanOf(b.y), SpanOf(b.out2),
                              SpanOf(b.x), scalars, b.executor);
       }},
      {"SumOfSquares",
       1,
       kForward,
       {&Buffers::losses},
       [](Buffers& b) {
         b.losses(0, 0) =
             static_cast<float>(kernels::SumOfSquares(SpanOf(b.x), b.executor));
       }},
      {"RmsNormBackward",
       3,
       kBackward,
       {&Buffers::out, &Buffers::dweight},
       [](Buffers& b) {
         kernels::RmsNormBackward(
             {b.x.view(), SpanOf(b.weight), SpanOf(b.per_token), b.y.view(),
              kRounding, /*add=*/false, b.out.view(), SpanOf(b.dweight)},
             b.executor);
       }},
      {"SwigluBackward",
       5,
       kBackward,
       {&Buffers::out, &Buffers::out2},
       [](Buffers& b) {
         kernels::SwigluBackward(b.x.view(), b.y.view(), b.z.view(), kRounding,
                                 b.out.view(), b.out2.view(), b.executor);
       }},
      {"RowSoftmax",
       2,
       kBackward,
       {&Buffers::out},
       [](Buffers& b) {
         kernels::RowSoftmax(b.x.view(), b.out.view(), b.executor);
       }},
      {"CrossEntropy",
       2,
       kBackward,
       {&Buffers::out, &Buffers::losses},
       [](Buffers& b) {
         kernels::CrossEntropy(b.x.view(), b.labels, 1e-3f, kRounding,
                               SpanOf(b.losses), b.out.view(), b.executor);
       }},
  };
}

/// Compares what an operation wrote on both.
Differences CompareOnce(const Operation& operation, Executor& gpu) {
  Executor cpu(1);
  Buffers on_gpu(kCompared, gpu);
  Buffers on_cpu(kCompared, cpu);
  operation.run(on_gpu);
  operation.run(on_cpu);
  Differences differences;
  for (const auto member : operation.written) {
    const Matrix<float>& values = on_cpu.*member;
    for (size_t row = 0; row < values.rows(); ++row) {
      differences.Compare(HostRow(on_gpu.*member, row),
                          {values.Row(row), values.cols()});
    }
  }
  return differences;
}

}  // namespace

std::vector<Figure> RowFigures(Executor& gpu) {
  const std::vector<Operation> operations = Operations();
  Buffers buffers(kTokens, gpu);
  const double bytes = static_cast<double>(buffers.x.size() * sizeof(float));
  std::vector<Figure> figures;
  for (const Operation& operation : operations) {
    const Work works[] = {
        WorkOf(gpu, [&] { operation.run(buffers); }),
        WorkOf(gpu, [&] { buffers.out.CopyFrom(buffers.x); })};
    const std::vector<double> seconds = Seconds(works);
    const double rate = operation.matrices * bytes / seconds[0];
    figures.push_back(
        {fmt::format("{} {}x{}, of a copy", operation.name, kTokens, kWidth),
         rate / (2 * bytes / seconds[1]), operation.bar,
         fmt::format("{:.0f} GB/s", 1e-9 * rate), CompareOnce(operation, gpu)});
  }
  return figures;
}

}  // namespace isoloss::bench
