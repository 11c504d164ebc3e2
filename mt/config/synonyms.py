"""Names of options elsewhere (OpenNMT, fairseq, JoeyNMT, Hugging Face, Marian) that are unlike those here."""

# For each option or section, or two options with " and " between them, its names elsewhere; and the sentences
# about settings that are not in a config.
_NAMES = {
    "data.path": "dataset dataset_name data_path train_data",
    "data.src": "src_lang source_lang",
    "data.tgt": "target_lang",
    "data.num_train_pairs": "max_train_samples max_samples",
    "data.max_length": "src_seq_length tgt_seq_length max_target_length max_source_positions "
    "max_target_positions max_position_embeddings",
    "tokenizer.kind": "level tokenizer_type subword bpe",
    "tokenizer.min_frequency": "thresholdsrc thresholdtgt",
    "tokenizer.max_size": "src_vocab_size tgt_vocab_size voc_limit num_merges nwordssrc nwordstgt dim_vocabs",
    "tokenizer.shared": "share_vocab joined_dictionary joint_vocab",
    "model.d_model": "hidden_size hidden_dim embedding_dim emb_size word_vec_size encoder_embed_dim "
    "decoder_embed_dim dim_emb n_embd",
    "model.num_heads": "encoder_attention_heads decoder_attention_heads",
    "model.num_encoder_layers and model.num_decoder_layers": "layers num_layers n_layers num_hidden_layers",
    "model.num_encoder_layers": "enc_depth",
    "model.num_decoder_layers": "dec_depth",
    "model.d_ff": "ff_size dim_feedforward ffn_dim intermediate_size transformer_ff transformer_dim_ffn "
    "encoder_ffn_embed_dim encoder_ffn_dim",
    "model.dropout": "hidden_dropout transformer_dropout",
    "model.attention_dropout": "transformer_dropout_attention",
    "model.activation_dropout": "relu_dropout transformer_dropout_ffn",
    "model.activation": "hidden_act",
    "model.norm_first": "pre_norm layer_norm normalize_before layernorm_position encoder_normalize_before "
    "decoder_normalize_before transformer_preprocess",
    "model.initial_std": "initializer_range",
    "model.share_embeddings and model.tie_output": "tied_embeddings",
    "model.tie_output": "tie_weights weight_tying tied_softmax tie_word_embeddings "
    "share_decoder_input_output_embed share_decoder_embeddings",
    "init_from.run": "finetune fine_tune finetune_from_model pretrained_model",
    "tokenizer.extend": "update_vocab",
    "training.freeze": "freeze_params freeze_encoder freeze_decoder",
    "schedule.kind": "scheduler lr_scheduler lr_scheduler_type scheduling decay_method lr_decay_inv_sqrt",
    "schedule.learning_rate": "lr max_lr",
    "schedule.factor": "learning_rate_factor",
    "schedule.warmup_steps": "learning_rate_warmup lr_warmup",
    "training.seed": "random_seed",
    "training.device": "gpu gpus use_cuda cuda",
    "training.precision": "amp fp16 bf16 dtype model_dtype compute_dtype",
    "training.batch_tokens": "batch_size per_device_train_batch_size max_tokens mini_batch mini_batch_words",
    "training.num_micro_batches": "accumulation_steps gradient_accumulation gradient_accumulation_steps "
    "accum_count update_freq batch_multiplier optimizer_delay",
    "training.adam_beta1 and training.adam_beta2": "betas adam_betas",
    "training.adam_epsilon": "eps",
    "training.clip_norm": "grad_clip gradient_clipping max_grad_norm",
    "training.ema_decay": "exponential_smoothing",
    "training.max_steps": "train_steps updates max_update max_updates after_batches",
    "training.max_epochs": "num_train_epochs after_epochs",
    "training.log_every_steps": "logging_freq log_interval report_every",
    "validation.every_steps": "eval_steps valid_steps validation_freq valid_freq validate_interval_updates",
    "validation.metric": "early_stopping_metric",
    "validation.patience": "early_stopping early_stopping_patience",
    "validation.batch_sentences": "eval_batch_size valid_batch_size",
    "checkpoint.every_steps": "save_checkpoint_steps save_interval_updates save_freq",
    "checkpoint.keep": "keep_checkpoint keep_last_epochs save_total_limit",
    "model": "transformer encoder decoder arch",
    "tokenizer": "vocab vocabulary",
    "training": "optimizer optim",
    "validation": "eval dev",
    "Decoding options are given when a model is used, such as mt translate --beam 5.": "beam beam_size "
    "num_beams beam_alpha length_penalty lenpen normalize max_output_length max_new_tokens temperature top_k "
    "top_p n_best nbest num_return_sequences block_ngram_repeat no_repeat_ngram_size",
    "The run directory is not part of a config: give it with --run PATH.": "output_dir model_dir save_dir",
    "A run resumes automatically when it is trained again with the same config.": "resume load_model "
    "resume_from_checkpoint restore_file train_from",
}
MEANINGS = {name: meaning for meaning, names in _NAMES.items() for name in names.split()}
"""What each name means: an option, a section, two options, or a sentence."""
