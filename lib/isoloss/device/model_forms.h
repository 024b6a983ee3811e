// The device's forms of the kernels in model_kernels.h. Matrices, parameters
// and moments lie in the device's memory; token ids, sums and magnitudes lie in
// the host's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/device/executor.h"
#include "isoloss/device/form_table.h"
#include "isoloss/device/model_kernels.h"
#include "isoloss/device/row_forms.h"
#include "isoloss/device/table.h"
#include "isoloss/kernels/embedding.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::device {

template <typename Target>
void SubtractForm(Input x, Input y, Output out, Executor& executor) {
  Call<Target> call(executor);
  Map(call, DifferenceOf{}, {x, y}, {out});
}

/// Returns the groups of those ids that occur.
template <typename Target>
IdGroups UploadGroups(Call<Target>& call,
                      const kernels::PositionsOfIds& positions) {
  std::vector<size_t> ids;
  std::vector<size_t> begins;
  std::vector<size_t> ends;
  const std::span<const size_t> all = positions.begins();
  for (size_t id = 0; id + 1 < all.size(); ++id) {
    if (all[id] == all[id + 1]) continue;
    ids.push_back(id);
    begins.push_back(all[id]);
    ends.push_back(all[id + 1]);
  }
  const auto upload = [&call](std::span<const size_t> values) {
    return call.Upload(values);
  };
  return {upload(ids), upload(begins), upload(ends), upload(positions.all()),
          ids.size()};
}

template <typename Target>
void AddEmbeddingGradientForm(std::span<const int32_t> tokens,
                              std::span<const size_t> sequence_ends, Input dx,
                              Output dtable, Executor& executor) {
  Call<Target> call(executor);
  static thread_local kernels::PositionsOfIds positions;
  positions.Group(tokens, dtable.rows());
  const IdGroups groups = UploadGroups(call, positions);
  ForEach(call, groups.count * dx.cols(),
          EmbeddingGradientElement{groups, call.Upload(sequence_ends),
                                   sequence_ends.size(), dx, dtable});
}

template <typename Target>
void FiniteAmaxesForm(Input values, std::span<const size_t> begins,
                      Rounding rounding, std::span<float> amaxes,
                      Executor& executor) {
  Call<Target> call(executor);
  float* const of_rows = call.template Room<float>(values.rows());
  call.Launch(FiniteAmaxRows{{}, values, rounding, of_rows});
  float* const of_groups = call.template Room<float>(amaxes.size());
  call.Launch(
      LargestOfGroups{of_rows, call.Upload(begins), amaxes.size(), of_groups});
  call.Download(of_groups, amaxes);
}

/// Returns the table of a list of tasks, uploaded.
template <auto kEnd, typename Target, typename Task>
Table<Task, kEnd> UploadTasks(Call<Target>& call,
                              const std::vector<Task>& tasks) {
  const std::span<const Task> list = tasks;
  return TableOf<kEnd>(list, call.Upload(list));
}

template <typename Target>
void SquaresOfTensorsForm(std::span<const kernels::TensorSquares> tensors,
                          Executor& executor) {
  Call<Target> call(executor);
  std::vector<SquaresTask> tasks;
  size_t end = 0;
  for (const auto& [values, leaves] : tensors) {
    end += leaves.size();
    tasks.push_back({values.data(), values.size(), end});
  }
  double* const sums = call.template Room<double>(end);
  call.Launch(
      SquaresOfLeaves{UploadTasks<&SquaresTask::end>(call, tasks), sums});
  std::vector<double> host(end);
  call.Download(sums, std::span(host));
  const double* next = host.data();
  for (const auto& [values, leaves] : tensors) {
    std::copy_n(next, leaves.size(), leaves.begin());
    next += leaves.size();
  }
}

template <typename Target>
void SetSumOfSquaresForm(std::span<const float> values, double& sum,
                         Executor& executor) {
  Call<Target> call(executor);
  size_t count = kernels::SquaresLeaves(values.size());
  const std::vector<SquaresTask> task = {{values.data(), values.size(), count}};
  double* nodes = call.template Room<double>(count);
  call.Launch(
      SquaresOfLeaves{UploadTasks<&SquaresTask::end>(call, task), nodes});
  while (count > 1) {
    const FoldRuns fold = {
        nodes, count,
        call.template Room<double>(CeilOf(count, FoldRuns::kRunLength))};
    call.Launch(fold);
    nodes = fold.roots;
    count = fold.blocks();
  }
  sum = 0;
  call.Download(nodes, std::span(&sum, count));
}

template <typename Target>
void MeasuredAdamWUpdateForm(std::span<const kernels::MeasuredAdamW> updates,
                             Executor& executor) {
  Call<Target> call(executor);
  std::vector<AdamWTask> tasks;
  size_t end = 0;
  for (const kernels::MeasuredAdamW& update : updates) {
    end += update.parameter_squares.size();
    tasks.push_back(
        {{update.scalars, update.gradient.data(), update.parameter.data(),
          update.first_moment.data(), update.second_moment.data()},
         update.gradient.data(),
         update.keeps_parameter,
         update.parameter.size(),
         end});
  }
  double* const sums = call.template Room<double>(2 * end);
  call.Launch(MeasuredAdamWLeaves{UploadTasks<&AdamWTask::end>(call, tasks),
                                  sums, sums + end});
  std::vector<double> host(2 * end);
  call.Download(sums, std::span(host));
  const double* next = host.data();
  for (const kernels::MeasuredAdamW& update : updates) {
    const size_t leaves = update.parameter_squares.size();
    std::copy_n(next, leaves, update.parameter_squares.begin());
    std::copy_n(next + end, leaves, update.update_squares.begin());
    next += leaves;
  }
}

template <typename Target>
void AddModelForms(Forms& forms) {
  AddForm(&kernels::Subtract, &SubtractForm<Target>, forms);
  AddForm(&kernels::AddEmbeddingGradient, &AddEmbeddingGradientForm<Target>,
          forms);
  AddForm(&kernels::FiniteAmaxes, &FiniteAmaxesForm<Target>, forms);
  AddForm(&kernels::SquaresOfTensors, &SquaresOfTensorsForm<Target>, forms);
  AddForm(&kernels::SetSumOfSquares, &SetSumOfSquaresForm<Target>, forms);
  AddForm(&kernels::MeasuredAdamWUpdate, &MeasuredAdamWUpdateForm<Target>,
          forms);
}

}  // namespace isoloss::device
