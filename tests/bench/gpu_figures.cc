#include "gpu_figures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>

#include "measure.h"

namespace isoloss::bench {
namespace {

template <typename Bits, typename T>
void CompareBits(std::span<const T> gpu, std::span<const T> cpu,
                 Differences& differences) {
  differences.compared += cpu.size();
  for (size_t i = 0; i < cpu.size(); ++i) {
    const bool alike =
        std::bit_cast<Bits>(gpu[i]) == std::bit_cast<Bits>(cpu[i]) ||
        (std::isnan(gpu[i]) && std::isnan(cpu[i]));
    if (!alike) ++differences.wrong;
  }
}

double SecondsOf(const Work& work, size_t calls) {
  const double start = WallSeconds();
  for (size_t i = 0; i < calls; ++i) work.begin();
  work.wait();
  return (WallSeconds() - start) / static_cast<double>(calls);
}

}  // namespace

void Differences::Compare(std::span<const float> gpu,
                          std::span<const float> cpu) {
  CompareBits<uint32_t>(gpu, cpu, *this);
}

void Differences::Compare(std::span<const double> gpu,
                          std::span<const double> cpu) {
  CompareBits<uint64_t>(gpu, cpu, *this);
}

std::vector<double> Seconds(std::span<const Work> works) {
  constexpr double kSampleSeconds = 0.02;
  constexpr int kRounds = 9;
  std::vector<size_t> calls;
  for (const Work& work : works) {
    SecondsOf(work, 2);
    calls.push_back(static_cast<size_t>(
        std::clamp(kSampleSeconds / SecondsOf(work, 1), 1.0, 1000.0)));
  }
  std::vector<std::vector<double>> samples(works.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < works.size(); ++i) {
      samples[i].push_back(SecondsOf(works[i], calls[i]));
    }
  }
  std::vector<double> medians;
  for (auto& sample : samples) medians.push_back(Median(std::move(sample)));
  return medians;
}

Work WorkOf(Executor& gpu, std::function<void()> begin) {
  // A copy to the host waits for what was begun before.
  const auto word = std::make_shared<Matrix<float>>(RoomFor(gpu, 1, 1));
  return {std::move(begin), [word] { HostRow(*word, 0); }};
}

Matrix<float> CopyFor(Executor& executor, const Matrix<float>& values) {
  Matrix<float> copy = RoomFor(executor, values.rows(), values.cols());
  executor.memory().CopyFromHost(values.data(), values.size() * sizeof(float),
                                 copy.data());
  return copy;
}

Matrix<float> RoomFor(Executor& executor, size_t rows, size_t cols) {
  Matrix<float> room(executor.memory());
  room.Resize(rows, cols);
  return room;
}

std::vector<float> HostRow(const Matrix<float>& values, size_t row) {
  std::vector<float> copy(values.cols());
  values.memory().CopyToHost(values.Row(row), copy.size() * sizeof(float),
                             copy.data());
  return copy;
}

}  // namespace isoloss::bench
