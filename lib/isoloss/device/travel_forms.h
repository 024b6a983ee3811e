// Defines the device's forms of kernels/travel.h. Rows and weights lie in the
// device's memory; the host makes the indices.
#pragma once

#include "isoloss/device/executor.h"
#include "isoloss/device/form_table.h"
#include "isoloss/device/row_forms.h"
#include "isoloss/device/travel_kernels.h"
#include "isoloss/kernels/travel.h"

namespace isoloss::device {

template <typename Target>
void RoundTripRowsForm(Input from, kernels::RowFormat format, Rounding rounding,
                       Output to, Executor& executor) {
  Call<Target> call(executor);
  call.Launch(RoundTripRuns{from, format, rounding, to});
}

template <typename Target>
void SumRowsForm(const kernels::RowSums& sums, kernels::SumRounding how,
                 Output out, Executor& executor) {
  Call<Target> call(executor);
  const kernels::RowSums there = {
      sums.rows,
      sums.weights,
      {call.Upload(sums.begins), sums.begins.size()},
      {call.Upload(sums.terms), sums.terms.size()}};
  ForEach(call, out.rows() * out.cols(), SumElement{there, how, out});
}

template <typename Target>
void AddTravelForms(Forms& forms) {
  AddForm(&kernels::RoundTripRows, &RoundTripRowsForm<Target>, forms);
  AddForm(&kernels::SumRows, &SumRowsForm<Target>, forms);
}

}  // namespace isoloss::device
