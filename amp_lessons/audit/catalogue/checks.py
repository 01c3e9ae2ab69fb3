"""What only the check of a training loop can see, with the reason why an audit cannot."""

from __future__ import annotations

from amp_lessons.audit.catalogue.rows import only_checked

_ASKED = "only an exercise asks for it"


# --- what an attempt is, and how it behaves

only_checked(
    _ASKED,
    not_attempted="the exercise has not been started",
    unfinished="one part of the exercise is written, another is not",
    not_a_function="something other than the function asked for was handed in",
    not_a_class="something other than the class asked for was handed in",
    not_a_dict="something other than the dict asked for was handed in",
    method_missing="the class lacks a method",
    method_hidden="an attribute of the same name hides a method",
    signature="it cannot be called as the stub can",
    time_limit="the learner's code ran longer than the check allows",
    process_ended="the learner's code ended the process it ran in",
    not_taken_along="the learner's code cannot be taken to the process in which it is checked",
    ends_or_blocks_the_process="a call that would end, copy or block the process was refused",
    patches_torch="something of PyTorch was replaced",
    leaves_state_behind="a setting of the process was left changed",
    input_changed="the argument was changed in place",
    gradients_cut_off="no gradient flows back to what was given",
    shape="the result has another shape than asked for",
    returned_a_tensor="the right number was returned as a tensor",
    not_a_float="the right number was returned in another type than float",
    not_an_int="the right number was returned in another type than int",
    checker_failed="the check itself made a mistake",
    progress_file="the progress file could not be read or written",
    same_code="an exercise that was to be repeated was handed in as it stood",
    live_room="the class's live room did not hear of what was solved",
    prints_a_lot="more was printed than a report can show",
    hard_coded_device="the code names a device instead of asking which one is meant",
)
only_checked(
    "the exception says it",
    raised="the learner's code raised an exception that no known mistake explains",
)
only_checked(
    "inputs are data",
    inputs_changed="arguments were changed in place",
)
only_checked(
    "what a function returns is its own affair",
    wrong_return_type="a value of another type was returned than asked for",
    returned_none="nothing was returned",
)

# --- in which dtype a training loop runs

only_checked(
    _ASKED,
    precision="forward and loss run in the dtype asked for, backward outside autocast",
)
only_checked(
    "PyTorch raises before anything is trained: audit.explain knows it",
    cast_by_hand="a tensor was cast by hand where autocast is off",
)
only_checked(
    "Python raises before anything is trained",
    old_autocast="autocast was asked for by its old name for CUDA only",
)
only_checked(
    "only CUDA's autocast refuses it",
    bce_under_autocast="binary_cross_entropy takes probabilities, which autocast refuses",
)

# --- from the loss to its gradients

only_checked(
    _ASKED,
    scaling="in fp16 the loss is scaled, and small gradients survive",
)
only_checked(
    "any loss is somebody's",
    loss_fn_unused="the loss function was never called with gradients enabled",
    other_loss="the loss is not that of the model's outputs and the batch's targets",
    own_scaling="the loss was scaled, rightly, without GradScaler",
)
only_checked(
    "any model may be trained",
    model_not_trained="a copy of the model was trained",
)
only_checked(
    "no training was seen, and none may have been meant",
    no_backward="backward was never called on a loss",
)
only_checked(
    "losses may be added up",
    losses_summed="the losses of several batches went through one backward pass",
)
only_checked(
    "a loss may be clamped",
    loss_cut_off="the loss was clamped or replaced before backward",
)
only_checked(
    "a script may train in several calls",
    scaler_kept="the scaler, or its state, is left from another call of the function",
)
only_checked(
    "the scaler lowers it, which is what it is for",
    scale_too_large="the loss scale is so large that every batch overflows",
)
only_checked(
    "a penalty may be part of the loss",
    other_gradient="backward computed the gradient of something else than the loss",
)

# --- steps

only_checked(
    _ASKED,
    updates="every update is plain SGD on the gradient that is wanted",
)
only_checked(
    "how many batches were to be added up is not known",
    steps_too_rarely="some batches were not followed by a step",
)
only_checked(
    "an audit gives it by another code",
    gradients_still_scaled="the update is too large by the loss scale",
    step_refused="the scaler refused to step, and its exception was swallowed",
)
only_checked(
    "weights may be initialised",
    weights_reset="the weights were changed before the first batch",
)
only_checked(
    "parameters may be frozen",
    parameters_left_out="a step did not reach all parameters",
)
only_checked(
    "a learning rate may change",
    optimizer_changed="the optimizer's settings were changed",
)
only_checked(
    "any optimizer may be used, and weights may be changed by hand",
    optimizer_unused="the optimizer that was passed in never stepped",
)

# --- overflows, and what the scaler learns from them

only_checked(
    _ASKED,
    overflow="gradients or results that are inf or NaN: dealt with, or not",
)

# --- what an audit sees beside the steps

only_checked(
    _ASKED,
    company="schedule and averaged weights go on with each step that is made, and with no other",
)
only_checked(
    "a schedule may go on as it likes",
    schedule_behind="the learning rate's schedule missed steps that were made",
    schedule_out_of_turn="the learning rate's schedule went on before a step, or too late after it",
)
only_checked(
    "weights may be averaged as one likes",
    average_behind="the averaged weights missed steps that were made",
    average_out_of_turn="the averaged weights were updated before a step, or too late after it",
)

# --- clipping

only_checked(
    "clipping values, or each layer by itself, are ways of clipping",
    clipped_piecewise="gradients were clipped one by one, which changes their direction",
)
only_checked(
    "nobody knows that clipping was asked for",
    not_clipped="gradients above max_norm were not clipped",
)
only_checked(
    "which norm was asked for is not known",
    wrong_max_norm="gradients were clipped to another norm than max_norm",
)

# --- a penalty on the gradient

only_checked(
    _ASKED,
    penalty="every update is that of the loss plus the penalty on its true gradient",
)
only_checked(
    "any loss is somebody's",
    penalty_missing="the penalty has no part in the update",
)

# --- accumulating gradients

only_checked(
    "how many batches were to be added up is not known",
    steps_every_batch="a step was made before the window of batches was over",
    window_cleared="gradients were set to zero within a window",
    last_window_dropped="the batches left over at the end of an epoch were never applied",
)
only_checked(
    "whether the sum or the mean of a window was wanted is not known",
    loss_not_divided="the losses of a window were added up instead of averaged",
)
only_checked(
    "micro-batches may have weights of their own",
    loss_divided_unevenly="the batches of a window have different weights",
)

# --- which batches a loop trains on, and the history it returns

only_checked(
    "how many batches were to come is not known",
    batches_skipped="not all batches were trained on",
    batches_repeated="some batches were trained on more often than others",
)
only_checked(
    "inputs are data",
    inputs_altered="the model was given other values than the loader yields",
)
only_checked(
    _ASKED,
    history="the history holds the mean loss of each epoch",
    history_not_a_list="the history is right, but no list",
)
only_checked(
    "what a function returns is its own affair",
    history_per_batch="the history has one entry per batch",
    history_length="the history has not one entry per epoch",
    history_of_tensors="the history holds tensors",
    history_divided="the history holds losses divided for accumulation",
    history_not_mean="the history holds something else than mean losses",
)
only_checked(
    "an audit gives it by another code",
    history_scaled="the history holds scaled losses",
)

# --- two optimizers

only_checked(
    _ASKED,
    discriminator="the discriminator's updates are right",
    generator="the generator's updates are right",
    losses="both losses are returned, unscaled",
    wrong_losses="the losses returned are wrong otherwise",
)
only_checked(
    "noise is data",
    other_noise="the generator was given other noise than the step was",
)
only_checked(
    "no training was seen, and none may have been meant",
    nothing_trained="neither network was called",
)
only_checked(
    "an audit gives it by another code",
    another_scaler="another scaler was used than the one passed in",
    gradients_missing="a step found no gradients in its network",
    discriminator_not_trained="the discriminator's optimizer never stepped",
    generator_not_trained="the generator's optimizer never stepped",
    losses_scaled="a scaled loss was returned",
)
only_checked(
    "a step may apply the gradients of two losses",
    discriminator_polluted="the generator's loss is part of the discriminator's update",
)
only_checked(
    "a loss may reach both networks",
    no_detach="the discriminator's loss is part of the generator's update",
)
only_checked(
    "any loss is somebody's",
    loss_incomplete="one of the discriminator's two terms is missing",
    sigmoid_twice="a sigmoid stands before a loss that applies one itself",
)
only_checked(
    "labels are data",
    other_labels="labels are not 1 for real images and 0 for fake ones",
    labels_swapped="real and fake have each other's labels",
)
only_checked(
    "autograd says it itself",
    graph_used_after_step="a backward pass needs weights that a step has changed",
)
only_checked(
    "what a function returns is its own affair",
    losses_not_floats="the losses returned are no floats",
    losses_exchanged="the losses were returned in the wrong order",
)
