"""What a single exercise asks for, and words itself."""

from __future__ import annotations

from amp_lessons.audit.catalogue.rows import only_checked

_ASKED = "only an exercise asks for it"


# --- checkpoints

only_checked(
    _ASKED,
    model="weights and buffers come back exactly",
    optimizer="the states of optimizer and scheduler come back",
    scaler="the scaler's state comes back",
    position="the epoch and the random numbers come back",
    nothing_saved="no file was written",
    saved_elsewhere="the file was written under another name than the one given",
    state_not_in_file="state was kept in a variable or in another file instead of the file",
    saving_changes_training="saving changed the training that was saved",
    pickled_objects="whole objects were saved instead of their state",
    empty_scaler_state="the state that was saved for the scaler is empty",
    weights_rounded="the weights came back rounded to 16 bits",
    model_incomplete="a part of the model's state did not come back",
    model_not_restored="the model kept its own weights",
    model_altered="the weights that came back are not those that were saved",
    goes_on_otherwise="training goes on otherwise although all states came back",
    optimizer_rounded="the optimizer's state came back rounded to 16 bits",
    parameters_replaced="the model has new parameters, which the optimizer does not step",
    optimizer_not_restored="the optimizer's state did not come back",
    learning_rate_lost="the learning rate did not come back",
    scheduler_not_restored="the scheduler's position did not come back",
    scaler_not_restored="the loss scale did not come back",
    growth_tracker_lost="the scaler's count of clean steps did not come back",
    epoch_lost="another epoch was returned than was saved",
    random_state_lost="the state of the random numbers did not come back",
)

# --- a loss scaler of one's own

only_checked(
    _ASKED,
    scale="the loss times the scale, with the loss's graph: returned, or not",
    unscale="gradients divided by the scale, once: or not",
    step="steps are skipped where a gradient is not finite, and only there",
    update="the scale falls and grows when it should",
    state_shared="two scalers know of each other's overflows, counts or scales",
    uses_grad_scaler="the work was left to PyTorch's scaler",
    get_scale="get_scale returns something that is not a float",
    init_scale="the first scale is not init_scale",
    changes_loss="the caller's own loss was changed in place",
    never_steps="no step was made although all gradients are finite",
    clipping_undone="step undid what was done to the gradients after unscale_",
    step_clears_gradients="step left no gradients behind",
    gradients_replaced="unscale_ put other tensors in .grad instead of dividing in place",
    scale_changed_in_step="the scale changed before update was called",
    never_recovers="an overflow is still remembered in the next iteration",
    steps_on_overflow="a step was made with inf or NaN",
    overflow_clipped_away="a step was made with what clipping had left of inf",
    steps_by_hand="the weights were changed without optimizer.step()",
    step_does_not_unscale="step applied gradients that were still scaled",
    stays_unscaled="unscale_ is still remembered in the next iteration",
    unscales_twice="step unscaled gradients that unscale_ had unscaled",
    wrong_step="a step is wrong, and no known mistake explains it",
    backoff="the scale does not fall by backoff_factor",
    growth_factor="the scale does not grow by growth_factor",
    growth_late="the scale does not grow after growth_interval clean iterations",
    finite_taken_for_inf="gradients that are finite, but large, are taken for inf",
    growth_early="the scale grows before growth_interval clean iterations",
    counter_not_reset="clean iterations from before an overflow are counted",
)

# --- the largest safe scale

only_checked(
    _ASKED,
    safe="nothing overflows at the scale returned",
    largest="at twice the scale something would",
    power_of_two="the scale is a power of two",
    overflows="a gradient overflows at the scale returned",
    too_small="a larger scale would be safe",
    limit_too_high="the scale allows for numbers that round up to inf",
    stricter_limit="the scale is safe, by a limit lower than it need be",
    not_a_scale="the scale is not a positive, finite number",
    not_a_power_of_two="multiplying by the scale would round gradients",
    not_below_one="the scale is not allowed to be below 1",
)

# --- decoding bits

only_checked(
    _ASKED,
    normal="normal numbers: right, or not",
    special="zeros, subnormal numbers, infinities and NaN are right",
    any_format="every format is right",
    sign="the sign bit was not read, or not where it is",
    sign_in_magnitude="the sign bit changed more than the sign",
    signed_zero="the sign of zero was lost",
    subnormal="subnormal numbers are wrong",
    subnormal_exponent="subnormal numbers are off by a factor of two",
    infinity="infinities are wrong",
    nan="NaN is wrong",
    bias="the exponent's bias is wrong",
    hidden_bit="the hidden 1 of a normal number is missing",
    mantissa_misread="the exponent is right and the mantissa is not",
    mantissa_lost="the mantissa makes no difference",
    one_format_only="one format is right, and another is not",
    rounded_to_float32="values were rounded to fp32",
    overflow_on_the_way="the value fits, a product on the way to it did not",
    too_large_for_a_float="the number returned is too large for a float",
)

# --- rounding to bfloat16

only_checked(
    _ASKED,
    nearest_even="values are rounded to the nearest, ties to even",
    without_a_cast="bits were rounded without PyTorch's cast",
    casts_to_bfloat16="PyTorch's cast rounded",
    representable="a value that needs no rounding was changed",
    truncates="lower bits were cut off instead of rounded",
    too_few_bits="fewer bits were kept than the format has",
    not_nearest="a value was not rounded to the nearest",
    rounds_up="values were rounded up that lie nearer below",
    ties="a tie does not go to the even neighbour",
    ties_away_from_zero="ties were always rounded up",
    negative="negative values are rounded otherwise than positive ones",
    not_bfloat16="the results have more bits than the format",
    bits_converted="the integer that holds the bits was converted, not reinterpreted",
)

# --- predicting dtypes

only_checked(
    _ASKED,
    dtypes="all predicted dtypes are right",
    missing="some operations have no answer yet",
    wrong_dtype="an operation returns another dtype",
    not_a_dtype="an answer is no dtype",
    unknown_operation="an answer is to something that was not asked",
)

# --- an island in fp32

only_checked(
    _ASKED,
    island="the operation ran in fp32, with autocast off",
    small="the rest still runs in 16 bits",
    gradients="gradients flow through the island",
    no_island="the operation ran in 16 bits",
    autocast_still_on="the input was cast, and autocast cast it back",
    input_not_cast="autocast was off, and the input still in 16 bits",
    island_too_large="a layer stands inside the island",
    autocast_left_off="autocast is off after the island",
    autocast_left_on="autocast is on after the island, where it was off",
    float64_into_a_layer="a layer was given fp64, which autocast leaves alone",
    needs_autocast="without autocast the dtypes do not match",
    switches_autocast_on="autocast was switched on, whatever the caller chose",
    unsupported_autocast="autocast was asked for in a dtype that it does not do here",
    layers_changed="the layers themselves were cast or changed",
    wider_than_needed="an operation ran in fp64 where fp32 is enough",
    layer_unused="a layer was never called",
    wrong_value="the output is wrong",
    wrong_gradient="the gradients are wrong although the output is right",
    gradient_cut="the gradients do not reach every layer",
)

# --- timing a step

only_checked(
    _ASKED,
    warm_up="what happens only in the first calls is not counted",
    synchronized="work that was only launched is counted, and no other",
    median="the median of the samples is returned, in milliseconds",
    no_warm_up="there were no calls before the first sample",
    warm_up_counted="the warm-up calls were timed as well",
    wrong_number_of_calls="the function was called too often, or not often enough",
    never_synchronized="only the launch was timed",
    no_sync_before="earlier work was timed as well",
    no_sync_after="the clock was read before the work was done",
    one_sync_for_all="calls overlapped",
    clock_starts_too_early="the clock was started before the device was waited for",
    not_wall_clock="the clock stands still while the step waits",
    adjustable_clock="the clock can be set while it is used",
    total_time="the time of all calls was returned",
    divided_twice="the time of one call was divided by the number of calls",
    wrong_unit="the time is in another unit",
    wrong_time="the time is wrong, and no known mistake explains it",
    not_a_time="the number returned is no duration",
    not_the_median="another statistic was returned than the median",
    not_averaged="of an even number of samples one was returned, not the mean of the middle two",
    rounded_time="digits of the time behind the point were rounded away",
    whole_milliseconds="the time was rounded to whole milliseconds",
)

# --- what a layer keeps for backward

only_checked(
    _ASKED,
    bytes="all predictions are right to the byte",
    not_bytes="an answer is no number of bytes",
    wrong_bytes="an answer is wrong, and no known mistake explains it",
    bits_not_bytes="bits were counted",
    elements_not_bytes="numbers were counted instead of bytes",
    tokens_and_width_swapped="tokens and width were taken for each other",
    autocast_ignored="the answers are those without autocast",
    autocast_swapped="the answers with and without autocast were exchanged",
    autocast_forgotten="an input that arrives in fp16 was counted in fp32",
    halved_everywhere="autocast was taken to halve everything",
    half_without_autocast="fp16 was counted without autocast",
    fp32_list_forgotten="an operation that autocast runs in fp32 was counted in fp16",
    input_and_output="both were counted where one is enough",
    output_counted="an output was counted that backward does not need",
    extra_copy="a copy was counted that is not kept",
    nothing_kept="nothing was counted",
    weight_copy_forgotten="the fp16 copy of the weight was left out",
    weight_copy_not_half="the fp16 copy of the weight was counted in fp32",
    bias_counted="the bias was counted",
    parameters_counted="parameters were counted, which are there anyway",
    one_byte_per_element="numbers were counted as if they were a mask",
    one_bit_per_element="numbers were counted as if they were a mask of bits",
    mask_counted="a mask was counted that is not kept",
    mask_not_one_byte="a mask was not counted as one byte per element",
    mask_follows_autocast="a mask was taken to be smaller under autocast",
    mask_and_activation="an activation was counted beside its mask",
    statistics_forgotten="the statistics of each token were left out",
    statistics_in_half="the statistics were counted in fp16",
    statistics_per_feature="statistics were counted per feature instead of per token",
    statistics_counted="statistics were counted that are not kept",
)

# --- patients: numbers in too few bits

only_checked(
    _ASKED,
    moved="every parameter comes as far as in fp32",
    moved_too_far="a parameter comes further than its learning rate takes it",
    batches_without_step="several batches met the same weights: a step did not follow each",
    moved_elsewhere="a parameter went where its gradients do not take it",
    moved_too_little="updates are missing, and rounding does not explain it",
    trained_elsewhere="the model handed in is as it was before training",
    weights_spoilt="a parameter is missing, of another shape, or not finite after training",
    losses_wrong="the losses returned are not the epochs' means",
    average="the moving average of the weights comes as far as in fp64",
    wrong_average="the moving average is wrong otherwise",
    shares_memory="what was returned changes when the model does",
    steps_miscounted="another number of steps was made than asked for",
    positions="every row is rotated by its own position's angle",
    autocast="autocast makes no difference",
    angles_rounded="angles lose the digits that a cosine needs",
    angles_cast_back="autocast cast positions or frequencies back for a matrix product",
    rotation_gradients="the gradient of the rotation is wrong although the result is right",
    wrong_rotation="rows are rotated by other angles, and rounding does not explain it",
    mask="keys that are not allowed have no weight",
    empty_rows="queries without a key give zeros and good gradients",
    masked_row_gradient="gradients through a query without a key are NaN",
    mask_leaks="keys that are not allowed have a say",
    scores_flattened="scores of allowed keys were clamped or rounded to the same number",
    mask_overflows="the mask makes inf or NaN of rows that have keys",
    wrong_attention="attention is wrong, and the mask does not explain it",
    attention_gradients="the gradients of attention are wrong although the result is right",
    blank="blank rows give zeros and good gradients",
    sizes="faint and bright rows are right with the eps given",
    eps_not_added="eps is a floor, stands outside the root, or is missing",
    eps_replaced="another eps was used, which makes another function",
    squares_overflow="squares are beyond the largest number of the format",
    wrong_normalisation="rows are normalised wrongly, and eps does not explain it",
    normalisation_gradients="gradients of the normalisation are wrong although its result is right",
    counts="metrics are right over one sample and over thousands",
    loss_sum_stops="a sum of losses in 16 bits lags behind",
    classes_confused="classes were kept in a dtype that does not tell them apart",
    batches_weighed_alike="batches of different sizes were weighed alike",
    wrong_accuracy="the accuracy is wrong otherwise",
    wrong_loss="the mean loss is wrong otherwise",
)

# --- scales of small formats

only_checked(
    _ASKED,
    half_a_step="what was cast stands for the tensor, to half a step of the format",
    corners="zeros, empty tensors and the smallest numbers have a scale too",
    visible="inf and NaN can still be seen after the cast",
    saturates="the scale takes the largest magnitude beyond the format's last number",
    range_unused="the scale leaves more than half of the format's range unused",
    scale_inverted="the scale and its inverse were mixed up",
    not_scaled="numbers were cast to a small format without a scale",
    inf_hidden="inf or NaN became finite in a cast",
    zero_amax="a tensor of zeros was divided by its largest magnitude",
    computed_in_16_bits="a scale, or what it is applied to, was rounded to 16 bits",
    amax_per_element="each element was given a scale of its own",
    not_one_scale="there are several scales where one was asked for",
    no_scale="the scale is zero, negative, inf or NaN",
    floor_too_high="a floor for the largest magnitude lies far above the numbers",
    scale_beyond_fp32="numbers too small for a scale in fp32 became NaN or infinite",
    wrong_cast="a value is not the nearest, and no known mistake explains it",
)

# --- the exponent that a block shares

only_checked(
    _ASKED,
    nothing_saturates="no number of a block is cut",
    smallest_exponent="the exponent is the smallest that will do",
    codes_of_e8m0="every block has an exponent that E8M0 has a code for",
    biased_exponent="the stored code was returned instead of the exponent",
    outside_e8m0="the exponent is none that E8M0 has",
    floor_saturates="an exponent rounded down cuts the largest number",
    nearest_saturates="an exponent rounded to the nearest cuts the largest number",
    one_too_many="an exponent less would do",
    rounds_to_the_largest="the largest magnitude lies above the largest number and is rounded to it",
)

# --- a linear function in eight bits

only_checked(
    _ASKED,
    three_products="output and both gradients are products of scaled casts",
    formats="each operand has the format that is asked for, and is rounded once",
    stale_cast="a weight had changed since the cast that was multiplied",
    quantised_twice="what had been cast to eight bits was cast to eight bits again",
    gradient_format="a gradient was cast to the format of weights",
    gradient_not_cast="a gradient took part in a product without a cast",
    forward_format="an activation or a weight was cast to the format of gradients",
    operand_not_cast="an activation or a weight took part in a product without a cast",
    unknown_cast="something was cast that is no operand times one number",
    not_unscaled="a product of scaled operands kept their scales",
    gradient_not_flowing="backward does not reach an argument",
    wrong_product="a product is wrong, and no known mistake explains it",
)

# --- a mean over ranks, by a ring

only_checked(
    _ASKED,
    mean_of_ranks="every rank returns the same mean",
    sent_in_fp32="what was sent was in fp32",
    ring="ranks talked to their neighbours, and sent no more than they had to",
    deadlock="the ranks would have waited for each other for ever",
    never_received="something was sent that nobody received",
    no_such_rank="a rank was to talk to itself, or to one that there is not",
    sends_no_tensor="something other than a tensor was sent",
    sends_without_end="a rank went on sending for ever",
    not_a_ring="a rank sent to one that is no neighbour of its own",
    sent_in_half="sums travelled in 16 bits",
    sent_wider="sums travelled in more bits than fp32 has",
    sends_too_much="more bytes were sent than a ring needs",
    results_differ="the ranks returned different means",
    not_divided="the sum was returned instead of the mean",
    mean_divided_twice="the mean was divided by the number of ranks once more",
    not_finite_elsewhere="inf and NaN are not where a rank's gradient had them",
    chunks_out_of_order="the chunks were joined in another order",
    summed_in_half="sums were computed in 16 bits",
    wrong_mean="the mean is wrong, and no known mistake explains it",
)

# --- on several processes

only_checked(
    _ASKED,
    rank_time_limit="a rank ran, or waited for the other, longer than the check allows",
    rank_ended="a rank ended without a result",
    weights_shared="all ranks had the same weights all the time",
    one_reduction="gradients were sent once per window, in fp32",
    updates_of_all="every update is that of the mean over all ranks' samples",
    skipped_together="all ranks skipped what one of them could not do",
    history_of_all="the history holds the mean loss over all ranks' samples",
    other_batches="a rank trained on other batches than its loader's",
    reduced_in_half="gradients were sent and added up in 16 bits",
    reduced_every_batch="more was sent than all gradients once per window of batches",
    ranks_start_apart="the ranks began with different weights",
    not_rank_zeros_weights="the ranks began with other weights than rank 0's",
    overflow_stepped_on="all ranks made a step although one had overflowed",
    mean_of_means="samples of small batches weigh more than those of large ones",
    wrong_update_of_all="an update is wrong, and no known mistake of several ranks explains it",
    history_not_of_all="the history holds something else than the mean over all ranks' samples",
)

# --- sharded masters

only_checked(
    _ASKED,
    masters_sharded="each rank keeps its share of the weights in fp32",
    computed_in_half="weights were sent and used in the dtype asked for",
    reduced_in_fp32="gradients were averaged over ranks in fp32",
    as_one_process="several processes train as one would",
    not_sharding="something other than a class that gathers and reduces was handed in",
    no_shard="there is no parameter that holds this rank's share",
    shard_size="the share is larger or smaller than an equal one",
    shard_values="the share does not hold this rank's weights",
    shard_replaced="the share is another tensor than the optimizer steps",
    padding_not_zero="the share is padded with something else than zeros",
    whole_masters_kept="all weights are kept in fp32 on every rank",
    compute_dtype_ignored="the model computes in another dtype than asked for",
    gathered_wrong="the weights gathered are not those of all ranks",
    gathered_in_fp32="weights were sent in more bits than they are used in",
    shard_reduced_in_half="gradients were added up over ranks in 16 bits",
    no_shard_gradient="the share has no gradient in fp32",
    shard_all_reduced="every rank was sent the whole mean gradient, and kept its share of it",
    shard_gradient_summed="the share's gradient is the sum over ranks",
    wrong_shard_gradient="the share's gradient is wrong, and no known mistake explains it",
    gradients_kept="the model's own gradients were left behind",
)

# --- statistics that a skipped step leaves behind

only_checked(
    _ASKED,
    statistics="a skipped step left the statistics as they were, and others moved them",
    skipped_batch_counted="a batch whose step was skipped is counted by a norm",
    statistics_replaced="statistics are others than the good batches have left",
    statistics_stand_still="a batch whose step was made did not move the statistics",
)

# --- which modules need islands

only_checked(
    _ASKED,
    islands_named="the modules that need fp32 were named, and no others",
    as_it_was="what was looked at was left as it was",
    model_left_changed="the model is another than before it was looked at",
    no_such_module="a name was given that no module has",
    everything_named="nearly all modules were named",
    named_by_type="a norm was named that is right in 16 bits",
    healthy_named="a module was named that is right in 16 bits",
    finite_but_wrong="a module was left out that returns finite numbers that are wrong",
    own_operations_missed="a module was left out whose own operations overflow, not its layers",
    hidden_by_the_first="a module was left out that stands behind another that is wrong",
    later_call_missed="a module was left out that goes wrong at a later call",
    first_call_missed="a module was left out that goes wrong at an earlier call",
    island_missed="a module was left out that overflows on what it is given",
    parent_named="a module was named of which only a part is wrong",
    nan_unnoticed="a module was left out that returns NaN",
    rows_missed="a module was left out that goes wrong in other rows than were looked at",
    not_by_norm="a module was judged by another measure than the norm of its error",
    calls_averaged="a module was left out that goes wrong at one of its calls",
    changed_in_place="what a module had been given or had returned was overwritten before it was judged",
    prefix_not_a_part="a module was taken for a part of one whose name begins alike",
)

# --- interviews alone: a stable softmax

only_checked(
    _ASKED,
    any_size="softmax and logsumexp hold for scores of any size",
    rounded_once="a softmax is rounded once",
    wrong_softmax="a softmax is wrong, and no known mistake explains it",
    exp_overflows="exp was taken of scores that it makes inf of",
    exp_underflows="exp was taken of scores that it makes zeros of",
    not_by_row="one number was subtracted from all rows, and not from each its own",
    mask_spoils_softmax="a score of -inf made NaN of a row that has others",
    rounded_on_the_way="exponentials or their sum were rounded to 16 bits",
    uses_torchs_softmax="a softmax or logsumexp of PyTorch's did the work",
)

# --- interviews alone: mean and variance in one pass

only_checked(
    _ASKED,
    one_pass="every block was taken once and let go",
    digits_left="the variance is right where the mean is large",
    digits_cancelled="the variance is the difference of two numbers of nearly the same size",
    state_in_fp64="more digits than fp32's were used to keep a sum",
    blocks_kept="blocks, or copies of them, were kept until the last had come",
    blocks_unread="blocks were left unread",
    blocks_weigh_alike="blocks of different lengths were weighed alike",
    between_blocks_forgotten="the distances between the means of blocks are missing",
    divided_by_n_minus_1="a variance was divided by one less than was asked for",
    standard_deviation="a standard deviation was returned instead of its square",
    summed_in_16_bits="numbers were added up in 16 bits before a mean was taken",
    running_mean="a mean over blocks is wrong, and no known mistake explains it",
    running_variance="a variance over blocks is wrong, and no known mistake explains it",
)

# --- interviews alone: stochastic rounding

only_checked(
    _ASKED,
    unbiased="the mean of many random roundings is the number",
    neighbours="a random rounding goes to one of two neighbours",
    repeatable="the draws of a random rounding can be repeated",
    exact_changed="a number that bf16 has was rounded to another",
    special_lost="a random rounding changed inf or NaN",
    no_neighbour="a number was rounded to one that is not next to it",
    not_random="a number was rounded the same way in every draw",
    fair_coin="both neighbours were as likely, wherever the number lies between them",
    biased="the odds of a random rounding are others than the distances ask for",
    one_draw_for_all="one draw rounded several elements",
    generator_unused="random numbers came from elsewhere than the generator given",
)

# --- interviews alone: a training step from nothing

only_checked(
    _ASKED,
    copies_in_fp16="the loss was computed once, with copies in fp16",
    masters_moved="masters in fp32 moved by the true gradient",
    overflow_left_out="a step that overflowed moved nothing and halved the scale",
    masters_replaced="the weights after a step are other tensors than before",
    loss_calls="the loss was computed several times, or never",
    not_in_fp16="the loss was computed with weights in another dtype than fp16",
    loss_scaled="the loss that was returned is not the one that was computed",
    scale_moved="the scale changed although nothing overflowed",
    scale_not_halved="the scale was not halved after an overflow",
    gradients_vanished="gradients too small for fp16 became zero",
    not_divided_by_scale="weights moved by gradients that were still scaled",
    update_rounded="an update was computed in fp16, which has no number so small",
    masters_rounded="an update below the last bit of fp16 was lost",
    step_elsewhere="the weights moved elsewhere than the gradient takes them",
    overflow_applied="weights moved although a gradient was not finite",
)

# --- interviews alone: a loss scaler with a state

only_checked(
    _ASKED,
    resumed="another scaler goes on with a state as the first would",
    state_not_plain="a state is no dict of plain numbers",
    state_goes_on="a state that was given changes with its scaler",
    scale_not_resumed="a loaded scaler has another scale than was saved",
    count_not_resumed="a loaded scaler does not know how many iterations were clean",
    settings_not_resumed="a loaded scaler has the factors or the interval of its own",
)

# --- a softmax, block by block

only_checked(
    _ASKED,
    whole_softmax="the result is that of a softmax over all scores",
    masked_blocks="masked blocks count nothing",
    state_in_fp32="nothing between scores and result is rounded to 16 bits",
    blocks_asked_again="blocks that can be gone through once were asked for again",
    not_rescaled="what was summed before the maximum grew was not rescaled",
    values_not_rescaled="the sum was rescaled when the maximum grew, the weighted values were not",
    sum_not_rescaled="the weighted values were rescaled when the maximum grew, the sum was not",
    sum_not_divided="weighted values were returned without a division by the sum of weights",
    blocks_averaged="each block was given a softmax of its own",
    last_block_only="what came before the last block was forgotten",
    exponents_overflow="exponentials overflow, or all become 0, for want of the largest score",
    masked_block_nan="a block of which a row sees nothing gives NaN",
    product_cast_back="autocast cast what a product in fp32 was given",
    state_in_half="a sum, an exponential or a product was rounded to 16 bits on the way",
)

# --- weights in four bits

only_checked(
    _ASKED,
    half_a_scale="codes times scales are the weights, to half of a scale",
    scale_per_group="each group has the scale of its own largest magnitude",
    not_finite_refused="weights that are inf or NaN are refused",
    not_finite_quantised="weights that are inf or NaN were given codes",
    codes_out_of_range="codes lie beyond those that 4 bits have",
    group_scale_lost="a group's scale is zero, inf or NaN although its weights are not",
    scale_per_row="all groups of a row share one scale",
    groups_of_outputs="groups lie along the outputs instead of the inputs",
    groups_interleaved="weights that share a scale are no neighbours",
    codes_clipped="the largest weights of a group were cut off",
    codes_unused="the largest weight of a group leaves codes unused",
    codes_truncated="quotients were cut off instead of rounded",
    codes_of_another_scale="codes were computed by the scale before it was rounded",
    wrong_codes="the codes are wrong, and no known mistake explains it",
)

# --- weights of tokens that another policy drew

only_checked(
    _ASKED,
    ratio_per_token="each weight is the ratio of a token's two probabilities",
    ratio_capped="no weight is above the cap, and below it none is changed",
    ratio_is_constant="no gradient flows through the weights",
    weights_have_graph="a gradient flows through importance weights",
    not_masked="a token without a probability was given a weight",
    ratio_of_probabilities="probabilities were divided that are 0 in fp32",
    ratio_not_capped="importance weights lie above the cap",
    ratio_inverted="the ratio of the two probabilities is inverted",
    ratio_capped_below="small importance weights were raised",
    capped_to_zero="tokens above the cap were left out instead of capped",
    weights_normalised="importance weights were divided by their mean or their sum",
    difference_in_half="differences of log-probabilities were rounded to 16 bits",
    wrong_weights="the weights are wrong, and no known mistake explains it",
)
